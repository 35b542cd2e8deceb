// What ran where: a line for each track, the queue beside it.

import { color, h, replace } from './dom.js'
import { duration, moment } from './format.js'
import { now, run } from './store.js'

const LINE = 44
const LEFT = 70

export function tracks(main) {
  let seconds = 120 // of time that is shown
  let end = null // the last moment that is shown; null follows the run
  const canvas = h('canvas', { class: 'timeline', tabindex: '0', role: 'img', 'aria-label': 'Updates on each track over time' })
  const hint = h('p', { class: 'quiet hint', role: 'status' }, 'Point at an update. Scroll to zoom, drag to move.')
  const queue = h('ol', { class: 'queue' })
  const span = h('span', { class: 'quiet' })
  const follow = h('button', { onclick: () => { end = null; draw() } }, 'follow')
  main.append(
    h('section', { class: 'columns' },
      h('div', { class: 'grow' }, h('div', { class: 'bar' }, h('h1', {}, 'Tracks'), span,
        h('button', { 'aria-label': 'Zoom in', onclick: () => zoom(0.5) }, '+'), h('button', { 'aria-label': 'Zoom out', onclick: () => zoom(2) }, '−'), follow),
      canvas, hint, legend()),
      h('div', { class: 'side' }, h('h1', {}, 'Queue'), queue)))

  let drawn = []
  function zoom(by) { seconds = Math.min(86400, Math.max(2, seconds * by)); draw() }

  function draw() {
    const count = Math.max(run.settings.tracks ?? 1, 1 + Math.max(-1, ...run.updates.map((each) => each.track)))
    const width = canvas.parentElement.clientWidth
    const height = count * LINE + 26
    const scale = devicePixelRatio
    canvas.width = width * scale
    canvas.height = height * scale
    canvas.style.height = `${height}px`
    const ctx = canvas.getContext('2d')
    ctx.scale(scale, scale)
    ctx.font = '12px system-ui'
    const last = end ?? now()
    const first = last - seconds
    const x = (at) => LEFT + ((at - first) / seconds) * (width - LEFT - 8)
    const most = Math.max(1, ...[...run.tables.values()].map((each) => each.priority ?? 1))
    ctx.fillStyle = color('grid')
    for (let line = 0; line < count; line++) ctx.fillRect(LEFT, line * LINE + 6, width - LEFT - 8, LINE - 12)
    ctx.fillStyle = color('quiet')
    for (let line = 0; line < count; line++) ctx.fillText(`track ${line}`, 8, line * LINE + LINE / 2 + 4)
    drawn = []
    const going = run.running.map((each) => ({ ...each, seconds: last - each.began, going: true }))
    for (const update of [...run.updates, ...going]) {
      const [from, to] = [Math.max(LEFT, x(update.began)), Math.min(width - 8, x(update.began + update.seconds))]
      if (to < LEFT || from > width - 8) continue
      const priority = run.tables.get(update.table)?.priority ?? 1
      const top = update.track * LINE + 6
      const wide = Math.max(1.5, to - from)
      ctx.globalAlpha = update.layer === 'live' ? 0.35 + 0.65 * Math.sqrt(priority / most) : 1
      ctx.fillStyle = update.error ? color('bad') : color(LAYERS[update.layer][0])
      ctx.fillRect(from, top, wide, LINE - 12)
      ctx.globalAlpha = 1
      if (update.going) { ctx.strokeStyle = color('text'); ctx.strokeRect(from + 0.5, top + 0.5, wide - 1, LINE - 13) }
      if (wide > 40) {
        ctx.save()
        ctx.beginPath()
        ctx.rect(from, top, wide, LINE - 12)
        ctx.clip()
        ctx.fillStyle = color('on-bar')
        ctx.fillText(update.table, from + 4, top + 20)
        ctx.restore()
      }
      drawn.push({ update, from, to: from + wide, top })
    }
    ctx.fillStyle = color('quiet')
    const step = steps(seconds)
    for (let at = Math.ceil(first / step) * step; at <= last; at += step) ctx.fillText(moment(at), Math.min(x(at), width - 60), height - 6)
    span.textContent = `last ${duration(seconds)}`
    follow.disabled = end === null
    replace(queue, run.queue.length ? run.queue.slice(0, 50).map((name) => h('li', {}, h('a', { href: `#/table/${encodeURIComponent(name.replace(/ \(.*\)$/, ''))}` }, name))) : h('p', { class: 'quiet' }, 'Nothing waits for a track.'),
      run.queue.length > 50 ? h('li', { class: 'quiet' }, `and ${run.queue.length - 50} more`) : null)
  }

  canvas.addEventListener('mousemove', (event) => {
    const at = drawn.findLast(({ from, to, top }) => event.offsetX >= from && event.offsetX <= to && event.offsetY >= top && event.offsetY <= top + LINE - 12)
    hint.textContent = at ? told(at.update) : 'Point at an update. Scroll to zoom, drag to move.'
  })
  canvas.addEventListener('wheel', (event) => { event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : 0.8) }, { passive: false })
  canvas.addEventListener('pointerdown', (event) => {
    const [from, before] = [event.clientX, end ?? now()]
    canvas.setPointerCapture(event.pointerId)
    const move = (moved) => { end = Math.min(now(), before - ((moved.clientX - from) / (canvas.clientWidth - LEFT - 8)) * seconds); draw() }
    canvas.addEventListener('pointermove', move)
    canvas.addEventListener('pointerup', () => canvas.removeEventListener('pointermove', move), { once: true })
  })
  canvas.addEventListener('keydown', (event) => {
    if (event.key === '+') zoom(0.5)
    else if (event.key === '-') zoom(2)
    else if (event.key === 'ArrowLeft') { end = (end ?? now()) - seconds / 4; draw() }
    else if (event.key === 'ArrowRight') { end = (end ?? now()) + seconds / 4; if (end >= now()) end = null; draw() }
  })
  draw()
  return { update: draw, tick: draw }
}

const LAYERS = { live: ['accent', 'live, darker for higher priority'], backfill: ['second', 'backfill'], maintenance: ['quiet', 'maintenance'], publish: ['warn', 'publishing'] }

const legend = () => h('p', { class: 'legend' }, Object.values(LAYERS).map(([kind, text]) => h('span', {}, h('i', { class: `key ${kind}` }), text)), h('span', {}, h('i', { class: 'key bad' }), 'failed'))

function told(update) {
  const what = update.layer === 'live' ? update.table : `${update.table} (${update.layer})`
  if (update.going) return `${what}: runs since ${duration(update.seconds)}`
  const waited = update.released ? `, waited ${duration(Math.max(0, update.began - update.released))}` : ''
  return `${what}: ${moment(update.began)}, took ${duration(update.seconds)}${waited}, ${update.error ? `failed: ${update.error}` : `${update.rows} rows`}`
}

function steps(seconds) {
  return [1, 2, 5, 10, 30, 60, 300, 600, 1800, 3600, 10800].find((step) => seconds / step < 8) ?? 21600
}
