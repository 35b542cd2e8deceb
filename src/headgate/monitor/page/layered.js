// A graph laid out left to right, drawn as SVG: boxes, and lines whose width tells how much flows.

import { svg } from './dom.js'
import { placing } from './placing.js'

// `nodes` are names, `edges` are pairs of them; `box(name)` makes what is in a box. `done` is given the parts that are to be
// changed later, `failed` why there are none. Returns what gives it up.
export function layered(nodes, edges, width, height, box, done, failed) {
  return placing({ nodes, edges, width, height }, (placed) => {
    const lines = placed.lines.map(({ from, to, points }) => ({ from, to, element: svg('path', { d: curved(points), class: 'edge' }) }))
    const boxes = new Map(placed.boxes.map(([name, x, y]) => {
      const element = box(name)
      element.setAttribute('transform', `translate(${x},${y})`)
      return [name, element]
    }))
    const picture = svg('svg', { viewBox: `0 0 ${placed.width} ${placed.height}`, width: placed.width, height: placed.height }, lines.map(({ element }) => element), [...boxes.values()])
    done({ picture, lines, boxes, width: placed.width, height: placed.height })
  }, failed)
}

// Through the middles between the points of a line.
function curved(points) {
  const middle = (a, b) => `${(a.x + b.x) / 2} ${(a.y + b.y) / 2}`
  const inner = points.slice(1, -1).map((point, place) => `Q${point.x} ${point.y} ${middle(point, points[place + 2])}`).join('')
  return `M${points[0].x} ${points[0].y}${inner}L${points[points.length - 1].x} ${points[points.length - 1].y}`
}

// From 1 to 8 pixels, against the most rows.
export const thickness = (rows, most) => (1 + 7 * Math.sqrt(rows / Math.max(1, most))).toFixed(1)

export const short = (name, most) => (name.length > most ? `${name.slice(0, most - 1)}…` : name)
