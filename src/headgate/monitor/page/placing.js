// Where the boxes and lines of a graph go, by dagre: on the page for few boxes, else in a worker, for which this is the script.

import { layout, Graph } from './vendor/dagre.js'

const FEW = 40 // boxes that are laid out at once; more would be noticed

// `nodes` are names, `edges` are pairs of them.
function place({ nodes, edges, width, height }) {
  const placed = new Graph()
  placed.setGraph({ rankdir: 'LR', nodesep: 14, ranksep: 60, marginx: 16, marginy: 16, ranker: nodes.length > FEW ? 'tight-tree' : 'network-simplex' })
  placed.setDefaultEdgeLabel(() => ({}))
  // dagre keeps nodes in plain objects, which have names of their own, such as toString.
  const id = (name) => `t ${name}`
  for (const name of nodes) placed.setNode(id(name), { width, height })
  for (const [from, to] of edges) placed.setEdge(id(from), id(to))
  layout(placed)
  const lines = placed.edges().map(({ v, w }) => ({ from: v.slice(2), to: w.slice(2), points: placed.edge({ v, w }).points }))
  const points = lines.flatMap((line) => line.points) // lines may leave the space that boxes take up
  return {
    boxes: nodes.map((name) => { const { x, y } = placed.node(id(name)); return [name, x - width / 2, y - height / 2] }), lines,
    width: points.reduce((most, { x }) => Math.max(most, x + 8), placed.graph().width), height: points.reduce((most, { y }) => Math.max(most, y + 8), placed.graph().height),
  }
}

// Calls `done` with the places: at once if there are few boxes, else later. Returns what gives it up.
export function placing(graph, done, failed) {
  if (graph.nodes.length <= FEW) { done(place(graph)); return () => {} }
  const worker = new Worker('/static/placing.js', { type: 'module' })
  worker.onmessage = ({ data }) => { worker.terminate(); done(data) }
  worker.onerror = (event) => { event.preventDefault(); worker.terminate(); failed(event.message ?? '') }
  worker.postMessage(graph)
  return () => worker.terminate()
}

if (typeof document === 'undefined') onmessage = ({ data }) => postMessage(place(data))
