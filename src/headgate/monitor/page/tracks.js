// What ran where: a line for each track, the queue beside it.

import { color, h, replaceIf, setText, tableLink } from './dom.js'
import { clock, count, duration, moment, share } from './format.js'
import { keptSince, now, run } from './store.js'

const LINE = 44
const BAR = LINE - 12
const RIGHT = 8
const LAYERS = { live: ['accent', 'live, stronger for a higher priority'], backfill: ['second', 'backfill'], maintenance: ['quiet', 'maintenance'], publish: ['warn', 'publishing'] }
const HINT = 'Point at an update for its figures. Scroll or press + and − to zoom, drag or press the arrows to move.'

export function tracks(main) {
  let seconds = 120 // of time that is shown
  let end = null // the last moment that is shown; null follows the run
  const canvas = h('canvas', { class: 'timeline', tabindex: '0', role: 'img', 'aria-label': 'Updates on each track over time' })
  const tip = h('div', { class: 'tip', hidden: true })
  const hint = h('p', { class: 'quiet hint' }, HINT)
  const notKept = h('span', { hidden: true }, h('i', { class: 'key not-kept' }), 'not kept any more')
  const queue = h('ol', { class: 'queue' })
  const span = h('span', { class: 'quiet', role: 'status' })
  const follow = h('button', { onclick: () => { end = null; draw() } }, 'follow')
  main.append(
    h('section', { class: 'columns' },
      h('div', { class: 'grow' }, h('div', { class: 'bar' }, h('h1', {}, 'Tracks'), span,
        h('button', { 'aria-label': 'Zoom in', onclick: () => zoom(0.5) }, '+'), h('button', { 'aria-label': 'Zoom out', onclick: () => zoom(2) }, '−'), follow),
      h('div', { class: 'over' }, canvas, tip), hint, legend(notKept)),
      h('div', { class: 'side' }, h('h1', {}, 'Queue'), queue)))

  let drawn = []
  let left = 96
  const latest = () => end ?? now()
  const wide = () => canvas.clientWidth - left - RIGHT

  // `at` is the moment that stays where it is.
  function zoom(by, at = latest()) {
    const before = seconds
    seconds = Math.min(86400, Math.max(2, seconds * by))
    if (end !== null || at !== latest()) move(at + ((latest() - at) * seconds) / before)
    draw()
  }

  function move(to) { end = to >= now() ? null : Math.max(run.started + Math.min(seconds, 1), to) }

  function draw() {
    const lines = Math.max(run.settings.tracks ?? 1, 1 + Math.max(-1, ...run.updates.slice(-500).map((each) => each.track)))
    const width = canvas.parentElement.clientWidth
    if (!width) return
    left = width < 500 ? 60 : 96
    const height = lines * LINE + 26
    const scale = devicePixelRatio
    canvas.width = width * scale
    canvas.height = height * scale
    canvas.style.height = `${height}px`
    const ctx = canvas.getContext('2d')
    ctx.scale(scale, scale)
    ctx.font = '12px system-ui, sans-serif'
    const last = latest()
    const first = last - seconds
    const x = (at) => left + ((at - first) / seconds) * (width - left - RIGHT)
    const most = Math.max(1, ...[...run.tables.values()].map((each) => each.priority ?? 1))
    // An update may have been handed to a track and wait there for others of its group: it has no beginning yet.
    const handed = run.running.filter((each) => each.track >= 0 && !each.began)
    const going = run.running.filter((each) => each.track >= 0 && each.began).map((each) => ({ ...each, seconds: Math.max(0, now() - each.began), going: true }))
    const shown = [...run.updates, ...going].filter((each) => each.track >= 0 && each.began <= last && each.began + each.seconds >= first)
    const since = Math.max(first, keptSince()) // what was before is not idle, but not known
    const known = last - since
    const idle = []
    notKept.hidden = keptSince() <= Math.max(first, run.started)
    for (let line = 0; line < lines; line++) {
      const top = line * LINE + 6
      ctx.fillStyle = color('grid')
      if (known > 0) ctx.fillRect(x(since), top, x(last) - x(since), BAR)
      if (!notKept.hidden) hatch(ctx, Math.max(left, x(run.started)), Math.min(x(since), x(last)), top)
      const busy = shown.filter((each) => each.track === line).reduce((sum, each) => sum + Math.max(0, Math.min(last, each.began + each.seconds) - Math.max(since, each.began)), 0)
      const free = known > 0 ? share(Math.max(0, 1 - busy / known)) : '–'
      idle.push(`track ${line} ${free}`)
      ctx.fillStyle = color('text')
      ctx.fillText(`track ${line}`, 4, top + 13)
      ctx.fillStyle = color('quiet')
      ctx.fillText(known > 0 ? `${free} idle` : 'not kept', 4, top + 28)
    }
    canvas.setAttribute('aria-label', `Updates on each track over time. Idle: ${idle.join(', ')}.`)
    drawn = []
    for (const update of shown) {
      const [from, to] = [Math.max(left, x(update.began)), Math.min(width - RIGHT, x(update.began + update.seconds))]
      const priority = run.tables.get(update.table)?.priority ?? 1
      const top = update.track * LINE + 6
      const long = Math.max(1.5, to - from - 1)
      ctx.globalAlpha = update.layer === 'live' && !update.error ? 0.35 + 0.65 * Math.sqrt(priority / most) : 1
      ctx.fillStyle = update.error ? color('bad') : color((LAYERS[update.layer] ?? LAYERS.live)[0])
      ctx.fillRect(from, top, long, BAR)
      const strong = ctx.globalAlpha > 0.6
      ctx.globalAlpha = 1
      if (update.going) { ctx.strokeStyle = color('text'); ctx.strokeRect(from + 0.5, top + 0.5, long - 1, BAR - 1) }
      if (long > 34) {
        ctx.save()
        ctx.beginPath()
        ctx.rect(from, top, long - 3, BAR)
        ctx.clip()
        ctx.fillStyle = color(strong ? 'on-bar' : 'text')
        ctx.fillText(update.table, from + 4, top + 20)
        ctx.restore()
      }
      drawn.push({ update, from, to: from + long, top })
    }
    ctx.fillStyle = color('quiet')
    const step = steps(seconds, Math.max(2, Math.floor((width - left) / 90)))
    for (let at = Math.ceil(first / step) * step; at <= last; at += step) {
      const text = clock(at, step)
      const place = x(at)
      ctx.fillRect(place, height - 22, 1, 4)
      if (place + ctx.measureText(text).width < width) ctx.fillText(text, place + 3, height - 8)
    }
    setText(span, end === null ? `the last ${duration(seconds)}` : `${duration(seconds)} up to ${moment(end)}`)
    follow.disabled = end === null
    const key = JSON.stringify([handed.map((each) => [each.name, each.track]), run.queue, run.state === 'live'])
    replaceIf(queue, key, () => (run.queue.length + handed.length ? [...handed.map((each) => queued(each.name, each.track)), ...run.queue.slice(0, 50).map((each) => queued(each)), run.queue.length > 50 ? h('li', { class: 'quiet' }, `and ${run.queue.length - 50} more`) : null]
      : [h('p', { class: 'quiet' }, run.state === 'live' ? 'Nothing waits for a track.' : 'The queue of a run that is over is empty.')]))
  }

  canvas.addEventListener('mousemove', (event) => {
    const at = drawn.findLast(({ from, to, top }) => event.offsetX >= from - 1 && event.offsetX <= to + 1 && event.offsetY >= top && event.offsetY <= top + BAR)
    tip.hidden = !at
    if (!at) return
    setText(tip, told(at.update))
    tip.style.left = `${Math.min(event.offsetX + 12, Math.max(0, canvas.clientWidth - 300))}px`
    tip.style.top = `${at.top + BAR + 4}px`
  })
  canvas.addEventListener('mouseleave', () => { tip.hidden = true })
  canvas.addEventListener('wheel', (event) => {
    event.preventDefault()
    zoom(event.deltaY > 0 ? 1.25 : 0.8, latest() - seconds + ((event.offsetX - left) / wide()) * seconds)
  }, { passive: false })
  canvas.addEventListener('pointerdown', (event) => {
    const [from, before] = [event.clientX, latest()]
    canvas.setPointerCapture(event.pointerId)
    const moved = (to) => { if (Math.abs(to.clientX - from) > 3) { move(before - ((to.clientX - from) / wide()) * seconds); draw() } }
    const done = () => canvas.removeEventListener('pointermove', moved)
    canvas.addEventListener('pointermove', moved)
    canvas.addEventListener('pointerup', done, { once: true })
    canvas.addEventListener('pointercancel', done, { once: true })
  })
  canvas.addEventListener('keydown', (event) => {
    if (event.key === '+') zoom(0.5)
    else if (event.key === '-') zoom(2)
    else if (event.key === 'ArrowLeft') { move(latest() - seconds / 4); draw() }
    else if (event.key === 'ArrowRight') { move(latest() + seconds / 4); draw() }
  })
  const resized = new ResizeObserver(() => draw())
  resized.observe(canvas.parentElement)
  const theme = matchMedia('(prefers-color-scheme: dark)')
  theme.addEventListener('change', draw)
  if (run.state !== 'live') seconds = Math.min(3600, Math.max(10, run.at - run.started))
  draw()
  return { update: draw, tick: draw, close: () => { resized.disconnect(); theme.removeEventListener('change', draw) } }
}

// A node of the queue: a table, or one of its other layers, "name (backfill)"; `track` is the one that it has already.
function queued(name, track = null) {
  const known = run.tables.has(name)
  const table = known ? name : name.replace(/ \([a-z]+\)$/, '')
  return h('li', {}, tableLink(table), known ? null : h('span', { class: 'quiet' }, name.slice(table.length)), track === null ? null : h('span', { class: 'quiet' }, ` next on track ${track}`))
}

// Time of which nothing is known.
function hatch(ctx, from, to, top) {
  if (to <= from) return
  ctx.save()
  ctx.beginPath()
  ctx.rect(from, top, to - from, BAR)
  ctx.clip()
  ctx.strokeStyle = color('line')
  ctx.beginPath()
  for (let place = from - BAR; place < to; place += 8) { ctx.moveTo(place, top + BAR); ctx.lineTo(place + BAR, top) }
  ctx.stroke()
  ctx.restore()
}

const legend = (notKept) => h('p', { class: 'legend' }, Object.values(LAYERS).map(([kind, text]) => h('span', {}, h('i', { class: `key ${kind}` }), text)),
  h('span', {}, h('i', { class: 'key bad' }), 'failed'), h('span', {}, h('i', { class: 'key idle' }), 'idle'), notKept)

function told(update) {
  const what = update.layer === 'live' ? update.table : `${update.table} (${update.layer})`
  if (update.going) return `${what}: has been running for ${duration(update.seconds)}`
  const waited = update.released ? `, waited ${duration(Math.max(0, update.began - update.released))}` : ''
  return `${what}: ${moment(update.began)}, took ${duration(update.seconds)}${waited}, ${update.error ? `failed: ${update.error}` : `${count(update.rows)} rows`}`
}

function steps(seconds, most) {
  return [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 10800].find((step) => seconds / step < most) ?? 21600
}
