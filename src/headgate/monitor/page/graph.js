// Which table is computed from which, left to right; colour by staleness against the target.

import { layout, Graph } from './vendor/dagre.js'
import { h, svg, replace } from './dom.js'
import { duration } from './format.js'
import { lag, run, staleness } from './store.js'

const [WIDTH, HEIGHT] = [150, 40]

export function graph(main) {
  const picture = h('div', { class: 'graph', tabindex: '0', 'aria-label': 'Graph of tables' })
  const zoom = h('input', { type: 'range', min: '0.2', max: '2', step: '0.05', value: run.tables.size > 60 ? '0.6' : '1', 'aria-label': 'Zoom', oninput: size })
  main.append(h('section', { class: 'grow' }, h('div', { class: 'bar' }, h('h1', {}, 'Graph'), h('label', {}, 'zoom ', zoom),
    h('span', { class: 'quiet' }, 'Point at a table to see what it is built on and what is built on it.')), picture))
  if (!run.tables.size) { replace(picture, h('p', { class: 'quiet empty' }, 'There is no table yet.')); return {} }

  const placed = new Graph()
  placed.setGraph({ rankdir: 'LR', nodesep: 14, ranksep: 60, marginx: 16, marginy: 16 })
  placed.setDefaultEdgeLabel(() => ({}))
  for (const each of run.tables.values()) placed.setNode(each.name, { width: WIDTH, height: HEIGHT })
  const below = new Map([...run.tables.keys()].map((name) => [name, []]))
  for (const each of run.tables.values()) {
    for (const source of each.sources) if (run.tables.has(source)) { placed.setEdge(source, each.name); below.get(source).push(each.name) }
  }
  layout(placed)
  const whole = placed.graph()
  const most = Math.max(1, ...[...run.tables.values()].map((each) => each.rows ?? 0))
  const edges = placed.edges().map(({ v, w }) => {
    const { points } = placed.edge({ v, w })
    const path = points.map(({ x, y }, place) => `${place ? 'L' : 'M'}${x} ${y}`).join('')
    const rows = run.tables.get(v).rows ?? 0
    return svg('path', { d: path, class: 'edge', 'data-from': v, 'data-to': w, 'stroke-width': 1 + 5 * Math.log1p(rows) / Math.log1p(most) })
  })
  const nodes = new Map()
  for (const each of run.tables.values()) {
    const { x, y } = placed.node(each.name)
    const sub = svg('text', { x: 8, y: 32, class: 'sub' })
    const box = svg('a', { href: `#/table/${encodeURIComponent(each.name)}`, class: 'node', transform: `translate(${x - WIDTH / 2},${y - HEIGHT / 2})`,
      onmouseenter: () => highlight(each.name), onmouseleave: () => highlight(null), onfocus: () => highlight(each.name), onblur: () => highlight(null) },
    svg('title', {}, each.name),
    svg('rect', { width: WIDTH, height: HEIGHT, rx: 6 }), svg('text', { x: 8, y: 16 }, short(each.name)), sub)
    nodes.set(each.name, { box, sub })
  }
  const drawing = svg('svg', { viewBox: `0 0 ${whole.width} ${whole.height}` }, edges, [...nodes.values()].map(({ box }) => box))
  replace(picture, drawing)

  function size() {
    drawing.setAttribute('width', whole.width * zoom.value)
    drawing.setAttribute('height', whole.height * zoom.value)
  }

  function highlight(name) {
    const near = new Set()
    if (name !== null) {
      const walk = (from, next) => { for (const other of next(from)) if (!near.has(other)) { near.add(other); walk(other, next) } }
      near.add(name)
      walk(name, (each) => run.tables.get(each)?.sources ?? [])
      walk(name, (each) => below.get(each) ?? [])
    }
    for (const [each, { box }] of nodes) box.classList.toggle('far', name !== null && !near.has(each))
    for (const edge of edges) edge.classList.toggle('far', name !== null && !(near.has(edge.dataset.from) && near.has(edge.dataset.to)))
  }

  function draw() {
    for (const [name, { box, sub }] of nodes) {
      const each = run.tables.get(name)
      if (!each) continue
      box.setAttribute('class', `node ${kind(each)}${box.classList.contains('far') ? ' far' : ''}`)
      sub.textContent = `${duration(staleness(each))} · ${each.state ?? 'new'}`
    }
  }
  size()
  draw()
  return { update: draw, tick: draw }
}

function kind(each) {
  if (['held', 'stopped'].includes(each.state)) return 'bad'
  if (each.target) return lag(each) > each.target ? 'bad' : lag(each) > each.target / 2 ? 'warn' : 'good'
  return ['retrying', 'no source', 'paused'].includes(each.state) ? 'warn' : 'good'
}

const short = (name) => (name.length > 20 ? `${name.slice(0, 19)}…` : name)
