// All tables at a glance: the curve of weighted staleness, and a row for each table.

import { h, replace, svg } from './dom.js'
import { count, duration } from './format.js'
import { curve } from './curve.js'
import { isPast, lag, run, staleness } from './store.js'

const ROW = 34 // pixels, as in the style
const COLUMNS = [
  ['name', 'table', (each) => each.name],
  ['priority', 'priority', (each) => -each.priority],
  ['class', 'class', (each) => each.class],
  ['staleness', 'stale', (each) => -(staleness(each) ?? -1)],
  ['spark', 'last minutes', null],
  ['lag', 'lag', (each) => -lag(each)],
  ['target', 'target', (each) => each.target ?? Infinity],
  ['state', 'state', (each) => ORDER.indexOf(each.state)],
  ['place', 'queue', (each) => each.place ?? Infinity],
  ['rows', 'rows', (each) => -each.rows],
  ['rejected', 'rejected', (each) => -each.rejected],
]
const ORDER = ['held', 'stopped', 'retrying', 'no source', 'paused', 'rebuilding', 'repairing', 'recomputing', 'running', 'queued', 'fresh']

const settings = { sort: 'priority', down: false, filter: '' }
const sparks = new Map() // {table: its last values}

export function overview(main) {
  const head = h('div', { class: 'chart', 'aria-label': 'Weighted staleness over time' })
  const filter = h('input', { type: 'search', placeholder: 'Filter by name or state', 'aria-label': 'Filter tables', value: settings.filter,
    oninput: () => { settings.filter = filter.value; rows() } })
  const total = h('span', { class: 'quiet' })
  const headings = h('div', { class: 'row heading', role: 'row' }, COLUMNS.map(([key, title, by]) =>
    by ? h('button', { class: `cell ${key}`, role: 'columnheader', 'data-key': key, onclick: () => sortBy(key) }, title) : h('span', { class: `cell ${key}` }, title)))
  const window_ = h('div', { class: 'window', tabindex: '0', role: 'rowgroup', onscroll: () => draw() })
  const space = h('div', { class: 'space' })
  window_.append(space)
  main.append(
    h('section', {}, h('h1', {}, 'Staleness, weighted by priority'), head),
    h('section', { class: 'grow' }, h('div', { class: 'bar' }, h('h1', {}, 'Tables'), filter, total),
      h('div', { class: 'tables', role: 'table', 'aria-label': 'Tables' }, headings, window_)))
  const chart = curve(head, [{ label: 'staleness' }])
  let order = []

  function sortBy(key) {
    settings.down = settings.sort === key ? !settings.down : false
    settings.sort = key
    rows()
  }

  function rows() {
    const wanted = settings.filter.trim().toLowerCase()
    const by = COLUMNS.find(([key]) => key === settings.sort)[2]
    order = [...run.tables.values()].filter((each) => !wanted || each.name.toLowerCase().includes(wanted) || (each.state ?? '').includes(wanted))
    const way = settings.down ? -1 : 1
    order.sort((a, b) => {
      const [first, second] = [by(a), by(b)]
      return way * (first < second ? -1 : first > second ? 1 : 0) || a.name.localeCompare(b.name)
    })
    for (const button of headings.querySelectorAll('button')) {
      button.setAttribute('aria-sort', button.dataset.key === settings.sort ? (settings.down ? 'descending' : 'ascending') : 'none')
    }
    total.textContent = order.length === run.tables.size ? `${order.length} tables` : `${order.length} of ${run.tables.size} tables`
    space.style.height = `${order.length * ROW}px`
    draw()
  }

  // Only the rows that can be seen are there.
  function draw() {
    const first = Math.max(0, Math.floor(window_.scrollTop / ROW) - 5)
    const most = Math.ceil((window_.clientHeight || 600) / ROW) + 10
    const shown = order.slice(first, first + most)
    if (!order.length) {
      replace(space, h('p', { class: 'quiet empty' }, run.tables.size ? 'No table fits the filter.' : 'There is no table yet.'))
      return
    }
    replace(space, shown.map((each, place) => row(each, (first + place) * ROW)))
  }

  function points() {
    chart.set([run.staleness.map(([at]) => at), run.staleness.map(([, value]) => value)], marks())
  }

  remember()
  rows()
  points()
  return {
    update: (what) => {
      if (what === 'seen') remember()
      if (what === 'seen' || what === 'state' || what === 'change') { rows(); points() }
    },
    tick: draw,
    close: () => chart.close(),
  }
}

function marks() {
  return run.changes.map((change) => ({ at: change.at, text: Object.entries(change.what).map(([key, value]) => `${key} ${[value].flat().join(' ')}`).join(', ') }))
}

function remember() {
  for (const each of run.tables.values()) {
    const values = sparks.get(each.name) ?? []
    values.push(staleness(each))
    if (values.length > 90) values.shift()
    sparks.set(each.name, values)
  }
}

function row(each, top) {
  const stale = staleness(each)
  const late = each.target && lag(each) > each.target
  const state = each.state === 'running' ? `running on ${each.track}` : each.state ?? 'new'
  return h('a', { class: 'row', role: 'row', href: `#/table/${encodeURIComponent(each.name)}`, style: { top: `${top}px` } },
    cell('name', each.name),
    cell('priority', String(each.priority ?? '–')),
    cell('class', String(each.class)),
    cell('staleness', isPast(each) ? 'past' : duration(stale), late ? 'bad' : null),
    h('span', { class: 'cell spark', role: 'cell' }, spark(sparks.get(each.name) ?? [], each.target)),
    cell('lag', lag(each) ? duration(lag(each)) : '–', late ? 'bad' : null),
    cell('target', each.target ? duration(each.target) : '–'),
    h('span', { class: 'cell state', role: 'cell' }, h('span', { class: `badge ${(each.state ?? 'new').replace(' ', '-')}` }, state)),
    cell('place', each.place ? `${each.place}.` : ''),
    cell('rows', count(each.rows)),
    cell('rejected', each.rejected ? count(each.rejected) : '', each.rejected ? 'warn' : null))
}

const cell = (key, text, kind) => h('span', { class: `cell ${key} ${kind ?? ''}`, role: 'cell', title: text }, text)

export function spark(values, target) {
  const known = values.filter((value) => value !== null && value !== undefined)
  const most = Math.max(1, target ?? 0, ...known)
  const x = (place) => (place * 88) / 89 + (90 - values.length)
  const y = (value) => 20 - (18 * value) / most
  const path = values.map((value, place) => (value === null || value === undefined ? '' : `${place && values[place - 1] !== null ? 'L' : 'M'}${x(place).toFixed(1)} ${y(value).toFixed(1)}`)).join('')
  return svg('svg', { viewBox: '0 0 90 22', width: '90', height: '22', 'aria-hidden': 'true' },
    target ? svg('line', { x1: 0, x2: 90, y1: y(target), y2: y(target), class: 'target' }) : null,
    svg('path', { d: path, class: 'line' }))
}
