// One table: how it stands, why, its updates and what they cost.

import { h, replace } from './dom.js'
import { count, duration, moment, number, share } from './format.js'
import { curve } from './curve.js'
import { backfill, pause, refresh, resume, setPriority } from './actions.js'
import { ask, lag, run, staleness } from './store.js'

export function table(main, name) {
  const each = () => run.tables.get(name)
  if (!each()) {
    replace(main, h('p', { class: 'empty' }, run.tables.size ? `There is no table ${name}.` : 'Loading …', ' ', h('a', { href: '#/' }, 'All tables')))
    return {}
  }
  const facts = h('dl', { class: 'facts' })
  const chart = h('div', { class: 'chart' })
  const costs = h('div', { class: 'chart' })
  const costText = h('p', { class: 'quiet' })
  const why = h('div', { class: 'why' }, h('p', { class: 'quiet' }, 'Asking …'))
  const history = h('tbody')
  const path = encodeURIComponent(name)
  main.append(
    h('section', {}, h('div', { class: 'bar' }, h('h1', {}, name),
      h('button', { onclick: () => refresh(name) }, 'refresh'),
      h('button', { onclick: () => (each().state === 'paused' || each().state === 'held' ? resume(name) : pause(name)), id: 'pause' }, 'pause'),
      h('button', { onclick: () => setPriority(name, each().priority) }, 'priority'),
      h('button', { onclick: () => backfill(name) }, 'compute the past again')), facts),
    h('section', {}, h('h2', {}, 'Staleness'), chart),
    h('section', {}, h('div', { class: 'bar' }, h('h2', {}, 'Why?'), h('button', { onclick: explain }, 'ask again')), why),
    h('section', {}, h('h2', {}, 'What an update costs'), costs, costText),
    h('section', {}, h('h2', {}, 'Updates'), h('div', { class: 'scroll' }, h('table', {}, h('thead', {}, h('tr', {},
      ['began', 'layer', 'track', 'waited', 'took', 'of which work', 'data', 'rows', 'rejected', 'outcome'].map((title) => h('th', {}, title)))), history))))
  const line = curve(chart, [{ label: 'staleness' }])
  const cost = curve(costs, [{ label: 'updates' }, { label: 'fitted', dash: [6, 4] }], { xTime: false, points: true })
  let points = []

  function draw() {
    const now = each()
    if (!now) return
    replace(facts, fact('state', now.state === 'running' ? `running on track ${now.track}` : now.state ?? 'new'), fact('staleness', duration(staleness(now))),
      fact('lag', duration(lag(now))), fact('target', now.target ? `${duration(now.target)}, met ${share(now.met)} of the time` : 'none'),
      fact('priority', number(now.priority)), fact('class', String(now.class)), fact('place in the queue', now.place ? String(now.place) : 'not waiting'),
      fact('rows', count(now.rows)), fact('rejected', count(now.rejected)), fact('computed from', now.sources.length
        ? now.sources.flatMap((source, place) => [place ? ', ' : '', h('a', { href: `#/table/${encodeURIComponent(source)}` }, source)]) : 'a source outside'),
      now.error ? fact('last error', now.error, 'bad') : null, now.note ? fact('its source says', now.note, 'warn') : null)
    const button = document.getElementById('pause')
    if (button) button.textContent = now.state === 'paused' || now.state === 'held' ? 'resume' : 'pause'
  }

  async function load() {
    try {
      const known = await ask(`/api/tables/${path}`)
      points = known.curve
      line.set([points.map(([at]) => at), points.map(([, value]) => value)])
      show(known.updates)
    } catch (error) { replace(history, h('tr', {}, h('td', { colspan: '10' }, error.message))) }
  }

  function show(updates) {
    const latest = updates.slice(-100).reverse()
    replace(history, latest.length ? latest.map((update) => h('tr', { class: update.error ? 'bad' : null },
      h('td', {}, moment(update.began)), h('td', {}, update.layer), h('td', {}, String(update.track)),
      h('td', {}, update.released ? duration(Math.max(0, update.began - update.released)) : '–'), h('td', {}, duration(update.seconds)), h('td', {}, duration(update.work)),
      h('td', {}, update.unit === 'seconds of data' ? duration(update.amount) : `${count(Math.round(update.amount))} ${update.unit}`),
      h('td', {}, count(update.rows)), h('td', {}, update.rejected ? count(update.rejected) : ''), h('td', {}, update.error ?? 'committed')))
      : h('tr', {}, h('td', { colspan: '10', class: 'quiet' }, 'No update of this table in this run yet.')))
    const live = updates.filter((update) => update.layer === 'live' && !update.error && update.amount > 0)
    if (live.length < 2) { costText.textContent = 'Not enough updates yet to tell.'; return }
    const sorted = [...live].sort((a, b) => a.amount - b.amount)
    const [alpha, beta] = fitted(sorted)
    cost.set([sorted.map((update) => update.amount), sorted.map((update) => update.seconds), sorted.map((update) => alpha + beta * update.amount)])
    const unit = live[0].unit
    costText.textContent = `fitted: ${duration(alpha)} to set up, and ${duration(beta * 1e3)} per 1,000 ${unit}; ${live.length} updates, left to right by size`
  }

  async function explain() {
    try {
      const known = await ask(`/api/tables/${path}/why`)
      replace(why, h('pre', {}, known.text), known.decisions.length ? h('details', {}, h('summary', {}, `the last ${known.decisions.length} decisions at which it could have run`),
        h('ol', {}, known.decisions.map((decision) => h('li', {}, `${moment(decision.at)}: ${decision.text.split(': ').slice(1).join(': ')}`,
          h('table', {}, decision.ranking.slice(0, 8).map((entry, place) => h('tr', { class: entry.name === name ? 'self' : null },
            h('td', {}, `${place + 1}.`), h('td', {}, entry.name), h('td', {}, entry.priority.map(number).join(', ')), h('td', {}, `waited ${duration(entry.waiting)}`)))))))) : null)
    } catch (error) { replace(why, h('p', { class: 'bad' }, error.message)) }
  }

  draw()
  load()
  explain()
  return {
    update: (what) => {
      draw()
      if (what === 'update' && run.updates[run.updates.length - 1]?.table === name) load()
      else if (what === 'seen' && each()) { points.push([run.at, staleness(each())]); line.set([points.map(([at]) => at), points.map(([, value]) => value)]) }
    },
    tick: draw,
    close: () => { line.close(); cost.close() },
  }
}

const fact = (name, value, kind) => [h('dt', {}, name), h('dd', { class: kind }, value)]

// The least squares line: seconds = alpha + beta * amount.
function fitted(updates) {
  const n = updates.length
  const [x, y] = [updates.reduce((sum, each) => sum + each.amount, 0) / n, updates.reduce((sum, each) => sum + each.seconds, 0) / n]
  const spread = updates.reduce((sum, each) => sum + (each.amount - x) ** 2, 0)
  const beta = spread ? Math.max(0, updates.reduce((sum, each) => sum + (each.amount - x) * (each.seconds - y), 0) / spread) : 0
  return [Math.max(0, y - beta * x), beta]
}
