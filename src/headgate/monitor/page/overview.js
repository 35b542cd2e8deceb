// All tables at a glance: the curve of weighted staleness, and a row for each table.

import { h, replace, replaceIf, setText, svg } from './dom.js'
import { count, duration, moment, number, share } from './format.js'
import { changed, curve } from './curve.js'
import { notices } from './notices.js'
import { isEmpty, isLate, isPast, lag, run, sparks, staleness } from './store.js'

const COLUMNS = [
  ['name', 'table', (each) => each.name],
  ['priority', 'priority', (each) => -each.priority],
  ['class', 'class', (each) => each.class],
  ['staleness', 'stale', (each) => -(staleness(each) ?? -1)],
  ['spark', 'last 2 min', null],
  ['lag', 'lag', (each) => -lag(each)],
  ['target', 'target', (each) => each.target ?? Infinity],
  ['state', 'state', (each) => ORDER.indexOf(each.state)],
  ['place', 'queue', (each) => each.place ?? Infinity],
  ['rows', 'rows', (each) => -each.rows],
  ['rejected', 'rejected', (each) => -each.rejected],
]
const LARGEST_FIRST = new Set(['priority', 'staleness', 'lag', 'rows', 'rejected']) // the others begin with the least
const TITLES = {
  staleness: 'how far the data in the table is behind the time of now', lag: 'how long the oldest data that is not in the table has been waiting',
  target: 'the lag that it should not exceed', place: 'its place in the queue', class: 'importance class',
}
const ORDER = ['stopped', 'stuck', 'held', 'retrying', 'no source', 'paused', 'rebuilding', 'repairing', 'recomputing', 'running', 'queued', 'waiting', 'new', 'fresh']
const AHEAD = 6 // rows that are there above and below those that can be seen

const settings = { sort: 'priority', down: false, filter: '', grouped: false }

export function overview(main) {
  const small = matchMedia('(max-width: 700px)')
  const height = () => (small.matches ? 58 : 34) // pixels, as in the style
  const head = h('div', { class: 'chart', role: 'img', 'aria-label': 'Weighted staleness over time' })
  const [times, meaning] = [h('summary', {}), h('p', {})]
  const bound = h('details', { class: 'bound quiet', hidden: true }, times, meaning)
  const uncounted = h('span', { class: 'quiet uncounted', title: 'Staleness counts from when a table first has rows; that of data of the past is just the age of the data.' })
  const changes = h('ul', { class: 'changes', 'aria-label': 'Changes' })
  const filter = h('input', { type: 'search', placeholder: 'Filter by name or state', 'aria-label': 'Filter tables', value: settings.filter,
    oninput: () => { settings.filter = filter.value; rows() } })
  const grouped = h('input', { type: 'checkbox', checked: settings.grouped, onchange: () => { settings.grouped = grouped.checked; rows() } })
  const sort = h('select', { 'aria-label': 'Sort by', class: 'small-only', onchange: () => sortBy(sort.value) }, COLUMNS.filter(([, , by]) => by).map(([key, title]) => h('option', { value: key, selected: key === settings.sort }, `by ${title}`)))
  const total = h('span', { class: 'quiet', role: 'status' })
  const headings = h('div', { class: 'row heading', role: 'row' }, COLUMNS.map(([key, title, by]) =>
    h('span', { class: `cell ${key}`, role: 'columnheader', 'data-key': key }, by ? h('button', { title: TITLES[key], onclick: () => sortBy(key) }, title) : run.recorded ? '2nd half' : title)))
  const told = notices()
  const window_ = h('div', { class: 'window', tabindex: '0', role: 'rowgroup', 'aria-label': 'Rows', onscroll: () => draw() })
  const space = h('div', { class: 'space' })
  window_.append(space)
  main.append(
    h('section', {}, h('div', { class: 'bar' }, h('h1', {}, 'Staleness, weighted by priority'), uncounted, bound), head, changes),
    told.element,
    h('section', { class: 'grow' }, h('div', { class: 'bar' }, h('h1', {}, 'Tables'), filter, h('label', {}, grouped, ' group by class'), sort, total),
      h('div', { class: 'tables', role: 'table', 'aria-label': 'Tables' }, headings, window_)))
  const chart = curve(head, [{ label: 'staleness' }], { height: 190 })
  let order = [] // tables, and before each group the text of its heading
  const made = new Map() // {key: the row that is there}

  function sortBy(key) {
    settings.down = settings.sort === key ? !settings.down : false
    settings.sort = key
    rows()
  }

  function rows() {
    const wanted = settings.filter.trim().toLowerCase()
    const by = COLUMNS.find(([key]) => key === settings.sort)[2]
    const way = settings.down ? -1 : 1
    const found = [...run.tables.values()].filter((each) => !wanted || each.name.toLowerCase().includes(wanted) || (each.state ?? '').includes(wanted))
      .map((each) => [by(each), each])
    found.sort(([first, a], [second, b]) => (settings.grouped ? b.class - a.class : 0) || way * (first < second ? -1 : first > second ? 1 : 0) || (a.name < b.name ? -1 : 1))
    order = found.map(([, each]) => each)
    if (settings.grouped) order = order.flatMap((each, place) => (place && order[place - 1].class === each.class ? [each] : [groupTitle(each.class, order), each]))
    for (const heading of headings.children) {
      heading.setAttribute('aria-sort', heading.dataset.key === settings.sort ? (settings.down === LARGEST_FIRST.has(settings.sort) ? 'ascending' : 'descending') : 'none')
    }
    setText(total, found.length === run.tables.size ? `${found.length} tables` : `${found.length} of ${run.tables.size} tables`)
    setText(uncounted, notCounted([...run.tables.values()]))
    space.style.height = `${order.length * height()}px`
    draw()
  }

  // Only the rows that can be seen are there; a row that stays is changed, not made anew.
  function draw() {
    const tall = height()
    const first = Math.max(0, Math.floor(window_.scrollTop / tall) - AHEAD)
    const shown = order.slice(first, first + Math.ceil((window_.clientHeight || 600) / tall) + 2 * AHEAD)
    if (!order.length) {
      made.clear()
      replace(space, h('p', { class: 'quiet empty' }, run.tables.size ? 'No table fits the filter.' : 'There is no table yet: declare one in the pipeline file and save it.'))
      return
    }
    if (!made.size) replace(space)
    const keys = new Set(shown.map((each) => (typeof each === 'string' ? each : `=${each.name}`)))
    for (const [key, row] of made) if (!keys.has(key)) { row.element.remove(); made.delete(key) }
    const focused = document.activeElement
    let next = space.firstChild // rows are there in the order in which they are seen, for whoever goes through them by key
    shown.forEach((each, place) => {
      const key = typeof each === 'string' ? each : `=${each.name}`
      if (!made.has(key)) {
        made.set(key, typeof each === 'string' ? { element: h('div', { class: 'row group', role: 'row' }, h('span', { role: 'cell' }, each)) } : tableRow(each.name))
      }
      const row = made.get(key)
      if (row.element === next) next = next.nextSibling
      else space.insertBefore(row.element, next)
      const top = `${(first + place) * tall}px`
      if (row.element.style.top !== top) row.element.style.top = top
      row.fill?.(each)
    })
    if (focused !== document.activeElement && space.contains(focused)) focused.focus({ preventScroll: true })
  }

  function bounded() {
    const [text, title] = boundInWords(run.bound)
    bound.hidden = !text
    setText(times, text)
    setText(meaning, title)
    times.title = title
  }

  function points() {
    chart.set([run.staleness.map(([at]) => at), run.staleness.map(([, value]) => value)], run.changes.map((change) => ({ at: change.at, text: changed(change.what) })))
    const latest = run.changes.slice(-4).reverse()
    replaceIf(changes, JSON.stringify(latest), () => latest.map((change) => h('li', {}, h('time', {}, moment(change.at)), ` ${changed(change.what)}`)))
  }

  small.addEventListener('change', rows)
  const resized = new ResizeObserver(() => draw())
  resized.observe(window_)
  rows()
  points()
  bounded()
  return {
    update: (what) => {
      if (what === 'bound') bounded()
      if (what === 'notice') told.draw()
      if (what === 'seen' || what === 'state') rows()
      if (!['update', 'runs', 'bound', 'notice'].includes(what)) points()
    },
    tick: draw,
    close: () => { chart.close(); resized.disconnect(); small.removeEventListener('change', rows) },
  }
}

// How many tables are not in the weighted staleness, and why.
function notCounted(tables) {
  const kinds = [[tables.filter(isEmpty).length, 'no rows yet'], [tables.filter(isPast).length, 'data of the past']].filter(([those]) => those)
  return kinds.length ? `without ${kinds.map(([those, why]) => `${those} ${those === 1 ? 'table' : 'tables'} with ${why}`).join(' and ')}` : ''
}

// How far the run is from the best possible, and what that means.
function boundInWords(told) {
  if (!told) return run.recorded ? ['comparing with the lower bound …', 'It takes some seconds.'] : ['', '']
  if (told.times === null) return ['lower bound: not computed', `Why: ${told.why}.`]
  const left = told.left_out ? ` ${told.left_out} tables are left out: their data is of the past, they had no rows to begin with, or they were declared later.` : ''
  const better = told.times < 1.005 ? 'No policy could have done better' : `No policy could have been more than ${share(1 - 1 / told.times)} fresher`
  const whole = run.recorded && told.seconds > run.at - run.started - 1
  return [`${told.times.toFixed(2)} times the bound, over ${whole ? 'the whole run' : `the last ${duration(told.seconds)}`}`,
    `${better}, with the same data and update times on ${told.tracks} track${told.tracks === 1 ? '' : 's'}. The bound is the weighted staleness that none can beat; it may be low, so a large number does not prove that one can.${left}`]
}

function groupTitle(importance, order) {
  const own = order.filter((each) => each.class === importance)
  const late = own.filter(isLate).length
  return `class ${importance} · ${own.length} tables${late ? ` · ${late} later than their target` : ''}`
}

// The row of one table, and how to fill it.
function tableRow(name) {
  const cells = Object.fromEntries(COLUMNS.map(([key]) => [key, h('span', { class: `cell ${key}`, role: 'cell' })]))
  const badge = h('span', { class: 'badge' })
  const curved = sparkline()
  cells.spark.append(curved.element)
  cells.state.append(badge)
  setText(cells.name, name)
  cells.name.title = name
  const element = h('a', { class: 'row', role: 'row', href: `#/table/${encodeURIComponent(name)}` }, Object.values(cells))
  const fill = (each) => {
    const late = isLate(each)
    setText(cells.priority, each.priority === undefined ? '–' : number(each.priority))
    setText(cells.class, String(each.class))
    setText(cells.staleness, isPast(each) ? 'past' : duration(staleness(each)))
    setText(cells.lag, lag(each) ? duration(lag(each)) : '–')
    setText(cells.target, each.target ? duration(each.target) : '–')
    setText(cells.place, each.place ? `${each.place}.` : '')
    setText(cells.rows, count(each.rows))
    setText(cells.rejected, each.rejected ? count(each.rejected) : '')
    setText(badge, each.state === 'running' ? `running on ${each.track}` : each.state ?? 'new')
    badge.className = `badge ${(each.state ?? 'new').replace(' ', '-')}`
    cells.lag.classList.toggle('bad', late)
    cells.staleness.classList.toggle('bad', late)
    cells.rejected.classList.toggle('warn', each.rejected > 0)
    curved.fill(sparks.get(name) ?? [], each.target)
  }
  return { element, fill }
}

// A small curve with the target as a line.
export function sparkline() {
  const line = svg('path', { class: 'line' })
  const target = svg('line', { x1: 0, x2: 90, class: 'target' })
  const element = svg('svg', { viewBox: '0 0 90 22', preserveAspectRatio: 'none', 'aria-hidden': 'true' }, target, line)
  let drawn = ''
  const fill = (values, limit) => {
    const known = values.filter((value) => value !== null && value !== undefined)
    const most = Math.max(1e-3, limit ?? 0, ...known) * 1.05
    const x = (place) => 89 - (values.length - 1 - place) * 1.5
    const y = (value) => (21 - (20 * value) / most).toFixed(1)
    const path = values.map((value, place) => (value === null || value === undefined ? '' : `${place && values[place - 1] !== null ? 'L' : 'M'}${x(place).toFixed(1)} ${y(value)}`)).join('')
    if (path === drawn) return
    drawn = path
    line.setAttribute('d', path)
    target.setAttribute('y1', limit ? y(limit) : 0)
    target.setAttribute('y2', limit ? y(limit) : 0)
    target.style.display = limit ? '' : 'none'
  }
  return { element, fill }
}
