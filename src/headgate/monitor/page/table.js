// One table: how it stands, why, and its updates. What is in it is shown by contents.js.

import { h, replace, replaceIf, setText, tableLink } from './dom.js'
import { APART, COUNTED, count, counts, duration, durations, moment, number, share } from './format.js'
import { changed, curve } from './curve.js'
import { backfill, pause, refresh, resume, setPriority } from './actions.js'
import { contents } from './contents.js'
import { why } from './why.js'
import { ask, heardOf, isLate, lag, longer, run, staleness } from './store.js'

const PARTS = [['waiting', 'waited for a track'], ['planning', 'planning'], ['spark', 'reading, computing, writing'], ['commit', 'commit']]

export function table(main, name) {
  const each = () => run.tables.get(name)
  if (!each()) {
    replace(main, h('div', { class: 'empty', role: 'alert' }, h('h1', {}, `There is no table ${name} in this run`), h('p', {}, h('a', { href: '#/' }, 'All tables'))))
    return {}
  }
  const path = `/api/tables/${encodeURIComponent(name)}`
  const facts = h('dl', { class: 'facts' })
  const chart = h('div', { class: 'chart', role: 'img', 'aria-label': `Staleness of ${name} over time` })
  const costs = h('div', { class: 'chart', role: 'img', 'aria-label': 'Seconds of updates by the amount of data' })
  const costText = h('p', { class: 'quiet' })
  const history = h('tbody')
  const toggle = h('button', { class: 'change', onclick: () => (isHalted() ? resume(name) : pause(name)) }, 'pause')
  const isHalted = () => ['paused', 'held'].includes(each().state)
  const reasons = why(name, path)
  const inside = contents(name, path)
  main.append(
    h('section', {}, h('div', { class: 'bar' }, h('h1', {}, name), h('span', { class: 'buttons changes-only' },
      toggle, h('button', { class: 'change', onclick: () => refresh(name) }, 'refresh'),
      h('button', { class: 'change', onclick: () => setPriority(name, each().priority) }, 'priority'),
      each().kind === 'table' ? h('button', { class: 'change', onclick: () => backfill(name) }, 'compute the past again') : null)), facts),
    h('div', { class: 'halves' },
      h('section', {}, h('h2', {}, 'Staleness'), chart),
      h('section', {}, h('h2', {}, 'What an update costs'), costs, costText)),
    reasons.element,
    h('section', {}, h('h2', {}, 'Updates'), h('p', { class: 'legend' }, PARTS.map(([kind, text]) => h('span', {}, h('i', { class: `key part-${kind}` }), text))),
      h('div', { class: 'scroll tall', tabindex: '0', role: 'region', 'aria-label': 'Updates' }, h('table', {}, h('thead', {}, h('tr', {},
        ['began', 'time', 'waited', 'planning', 'Spark', 'commit', 'data', 'rows', 'rejected', 'track', 'layer', 'outcome'].map((title) => h('th', { scope: 'col' }, title)))), history))),
    inside.element)
  const line = curve(chart, each().target ? [{ label: 'staleness' }, { label: 'target lag', color: 'warn', dash: [5, 5], width: 1.5 }] : [{ label: 'staleness' }])
  let unit = 'seconds of data'
  const inTime = () => unit === 'seconds of data'
  const cost = curve(costs, [{ label: 'updates', points: true }, { label: 'α + β n', color: 'second', dash: [6, 4] }], {
    xTime: false, xLabel: 'data', xValue: (value) => amount(value, unit), xFormat: (values) => (inTime() ? durations(values) : counts(values, unit)), xApart: () => (inTime() ? APART : COUNTED) })
  let points = []
  let later = null
  let heard = heardOf.get(name) // of its updates, when they were last asked for

  // Changes what is different only, so that what is focused or selected stays. A list is one of tables.
  const told = new Map()
  function put(all) {
    for (const [title, value, kind] of all) {
      if (!told.has(title)) {
        const dd = h('dd')
        told.set(title, { div: h('div', {}, h('dt', {}, title), dd), dd })
        facts.append(told.get(title).div)
      }
      const { div, dd } = told.get(title)
      div.hidden = value === null
      dd.className = kind ?? ''
      if (Array.isArray(value)) replaceIf(dd, value.join('\n'), () => value.flatMap((each, place) => [place ? ', ' : '', tableLink(each)]))
      else setText(dd, value ?? '')
    }
  }

  function draw() {
    const now = each()
    if (!now) return
    const late = isLate(now)
    put([fact('state', now.state === 'running' ? `running on track ${now.track}` : now.state ?? 'new'), fact('staleness', duration(staleness(now))),
      fact('lag', lag(now) ? duration(lag(now)) : 'nothing waits', late ? 'bad' : null), fact('target lag', now.target ? `${duration(now.target)}, met ${share(now.met)} of the time` : 'none', late ? 'bad' : null),
      fact('priority', number(now.priority)), fact('class', String(now.class)), fact('place in the queue', now.place ? String(now.place) : 'not in it'),
      fact('rows', count(now.rows)), fact('rejected rows', count(now.rejected), now.rejected ? 'warn' : null), fact('updates', `${count(now.updates)} in this run${now.left ? `, ${now.left} more for what waits now` : ''}`),
      fact('computed from', now.sources.length ? now.sources : `a source outside (${now.kind})`),
      fact('past to compute again', now.repairs ? (typeof now.repaired === 'number' ? `${share(now.repaired)} done, ${duration(now.repairs)} of event time are left` : 'all of it') : null, 'warn'),
      fact('last error', now.error || null, 'bad'), fact('its source says', now.note || null, 'warn')])
    setText(toggle, isHalted() ? 'resume' : 'pause')
    for (const button of main.querySelectorAll('button.change')) button.disabled = run.read_only || run.state !== 'live'
  }

  async function load() {
    try {
      const known = await ask(path)
      points = known.curve
      unit = known.cost?.unit ?? known.updates.at(-1)?.unit ?? unit
      drawLine()
      show(known.updates)
      showCost(known)
    } catch (error) { replace(history, h('tr', {}, h('td', { colspan: '12', class: 'bad' }, error.message))) }
  }

  function drawLine() {
    const { target } = each() ?? {}
    const own = run.changes.filter((change) => JSON.stringify(change.what).includes(JSON.stringify(name)) || 'policy' in change.what || 'tracks' in change.what)
    const data = [points.map(([at]) => at), points.map(([, value]) => value)]
    if (target) data.push(points.map(() => target))
    line.set(data, own.map((change) => ({ at: change.at, text: changed(change.what) })))
  }

  function show(updates) {
    const latest = updates.slice(-100).reverse()
    const most = Math.max(1e-9, ...latest.map((update) => waited(update) + update.planning + update.seconds))
    replace(history, latest.length ? latest.map((update) => {
      const times = [waited(update), update.planning, update.work, update.commit]
      return h('tr', { class: update.error ? 'bad' : null },
        h('td', {}, moment(update.began)), h('td', {}, h('span', { class: 'split', 'aria-hidden': 'true' }, times.map((time, place) => h('i', { class: `part-${PARTS[place][0]}`, style: { width: `${(100 * time) / most}%` } })))),
        times.map((time) => h('td', {}, duration(time))), h('td', {}, amount(update.amount, update.unit)),
        h('td', {}, count(update.rows)), h('td', { class: update.rejected ? 'warn' : null }, update.rejected ? count(update.rejected) : ''), h('td', {}, update.track < 0 ? '–' : String(update.track)), h('td', {}, update.layer), h('td', { class: 'long' }, update.error ?? outcome(update)))
    }) : h('tr', {}, h('td', { colspan: '12', class: 'quiet' }, 'No update of this table in this run yet. Why? tells what it waits for.')))
  }

  function showCost({ updates, cost: fitted }) {
    const live = updates.filter((update) => update.layer === 'live' && !update.error && update.unit === unit).sort((a, b) => a.amount - b.amount)
    const line_ = fitted ? live.map((update) => fitted.alpha + fitted.beta * update.amount) : live.map(() => null)
    cost.set([live.map((update) => update.amount), live.map((update) => update.seconds), line_])
    setText(costText, fitted ? `α = ${duration(fitted.alpha)} to set up, β = ${slope(fitted.beta, fitted.unit)}; as the scheduler fits it to ${fitted.updates} updates, recent ones counting more.`
      : live.length ? 'A line is fitted from the third update on.' : 'There is no update to fit a line to yet.')
  }

  draw()
  load()
  return {
    update: (what) => {
      draw()
      // Updates may come many times a second: they are asked for once in a while.
      if (what === 'update' && heardOf.get(name) !== heard) { heard = heardOf.get(name); later ??= setTimeout(() => { later = null; load() }, 500) }
      else if (what === 'seen' && each()) { points = longer(points, [run.at, staleness(each())]); drawLine() }
    },
    tick: draw,
    close: () => { clearTimeout(later); line.close(); cost.close() },
  }
}

const fact = (title, value, kind) => [title, value, kind]

/** Of an update that was committed: with whom it shared a job. */
function outcome(update) {
  const others = (update.together ?? []).filter((name) => name !== update.table)
  return others.length ? `committed, in one job with ${others.join(', ')}` : 'committed'
}

const waited = (update) => (update.released ? Math.max(0, update.began - update.released) : 0)

const amount = (value, unit) => (unit === 'seconds of data' ? duration(value) : `${count(Math.round(value))} ${unit}`)

const slope = (beta, unit) => (unit === 'seconds of data' ? `${duration(60 * beta)} per minute of data` : `${duration(1e6 * beta)} per million ${unit}`)
