// The operators of stream queries inside tables: how the rows flow, where they wait, and what they cost.

import { grid, h, replace, svg, tableLink } from './dom.js'
import { count, duration, number, share } from './format.js'
import { layered, short, thickness } from './layered.js'
import { ask } from './store.js'

const [WIDTH, HEIGHT] = [214, 58]
const EVERY = 2000 // milliseconds between two questions at least

export function operators(main) {
  const body = h('div', { class: 'stack' }, h('p', { class: 'quiet empty' }, 'Asking …'))
  main.append(body)
  let asked = 0
  let shown = ''

  async function load() {
    asked = Date.now()
    try {
      const known = (await ask('/api/operators')).operators
      const key = JSON.stringify(known)
      if (key === shown) return
      shown = key
      replace(body, known.length ? queriesOf(known).map(query) : empty())
    } catch (error) { replace(body, h('p', { class: 'bad empty', role: 'alert' }, error.message)); shown = '' }
  }

  load()
  return { update: (what) => { if (what === 'update' && Date.now() > asked + EVERY) load() } }
}

const empty = () => h('section', {}, h('h1', {}, 'Operators'), h('p', { class: 'quiet' },
  'No stream query has run inside a table in this run. on_spark in the function of a table makes one; its operators, their queues and what they cost are then shown here.'))

function queriesOf(known) {
  const found = new Map()
  for (const each of known) {
    const key = JSON.stringify([each.table, each.query])
    found.set(key, [...(found.get(key) ?? []), each])
  }
  return [...found.values()]
}

function query(operators_) {
  const [{ table, query: name }] = operators_
  const named = new Map(operators_.map((each) => [each.name, each]))
  const edges = operators_.flatMap((each) => each.inputs.filter((input) => named.has(input)).map((input) => [input, each.name]))
  const most = Math.max(...operators_.map((each) => each.rows_out))
  const picture = h('div', { class: 'graph low', tabindex: '0', role: 'region', 'aria-label': `Operators of ${name}` })
  layered([...named.keys()], edges, WIDTH, HEIGHT, (each) => box(named.get(each)), (drawing) => {
    for (const { from, element } of drawing.lines) element.style.strokeWidth = `${thickness(named.get(from).rows_out, most)}px`
    replace(picture, drawing.picture)
  }, (why) => replace(picture, h('p', { class: 'bad' }, `The graph cannot be drawn: ${why}`)))
  const work = operators_.reduce((sum, each) => sum + each.processor, 0)
  return h('section', {}, h('div', { class: 'bar' }, h('h1', {}, `Operators of ${name}`), h('span', { class: 'quiet' }, 'in ', tableLink(table), `, over all updates of this run · ${duration(work)} of processor time`)),
    picture,
    grid(['operator', 'kind', 'rows in', 'rows out', ['selectivity', 'rows out per row in'], ['cost', 'processor time per row'], ['queue', 'most rows that waited in it in one task'],
      ['utilisation', 'share of the time in which rows waited for it or were processed'], ['T_Q', 'mean time of a row in the middle of the queue'],
      ['T_S', 'mean time of a row at the head of the queue, until its turn'], ['T_C', 'mean time of a row with a worker'], 'rejected', ['work', 'share of the processor time']],
    operators_.map((each) => [[each.name, 'label'], each.kind, count(each.rows_in), count(each.rows_out), number(each.selectivity), `${duration(each.cost)} / row`, `${count(each.peak_rows_waiting)} rows`, share(each.utilisation),
      duration(each.in_queue), duration(each.for_a_turn), duration(each.computing), each.rejected ? [count(each.rejected), 'warn'] : '', share(work ? each.processor / work : 0)]), `Operators of ${name}`))
}

function box(each) {
  const busy = Math.min(1, each.utilisation)
  return svg('g', { class: `node ${busy > 0.9 ? 'bad' : busy > 0.6 ? 'warn' : 'plain'}` }, svg('title', {}, `${each.name} (${each.kind})`),
    svg('rect', { width: WIDTH, height: HEIGHT, rx: 7 }), svg('text', { x: 9, y: 17 }, short(each.name, 27)),
    svg('text', { x: 9, y: 33, class: 'sub' }, `${count(each.rows_in)} → ${count(each.rows_out)} rows · ${share(busy)} busy`),
    svg('text', { x: 9, y: 48, class: 'sub' }, `Q ${duration(each.in_queue)} · S ${duration(each.for_a_turn)} · C ${duration(each.computing)}`))
}
