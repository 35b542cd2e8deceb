// Curves over time with marks, by uPlot. Sizes follow the element they are in, colours follow the theme.

import uPlot from './vendor/uplot.js'
import { color } from './dom.js'
import { APART, clock, duration, durations, moment } from './format.js'

const COLORS = ['accent', 'second', 'quiet']

// A line is {label, dash, color, points}; points are shown without a line between them. `xFormat` takes all values of an
// axis, so that they have one unit.
export function curve(element, lines, { height = 200, xTime = true, xValue = String, xFormat = (values) => values.map(xValue), xApart, xLabel = 'time' } = {}) {
  let marks = []
  let data = [[], ...lines.map(() => [])]
  let plot = null
  const narrow = () => element.clientWidth < 500

  function drawMarks(u) {
    const { ctx, bbox } = u
    ctx.save()
    ctx.strokeStyle = color('mark')
    ctx.fillStyle = color('mark')
    ctx.setLineDash([4, 4])
    ctx.font = `${11 * devicePixelRatio}px system-ui`
    ctx.textAlign = 'left' // the axes leave theirs behind
    ctx.textBaseline = 'alphabetic'
    let last = -Infinity
    for (const { at, text } of marks) {
      const x = u.valToPos(at, 'x', true)
      if (x < bbox.left || x > bbox.left + bbox.width) continue
      ctx.beginPath()
      ctx.moveTo(x, bbox.top)
      ctx.lineTo(x, bbox.top + bbox.height)
      ctx.stroke()
      const width = ctx.measureText(text).width
      const gap = 4 * devicePixelRatio
      const left = x + gap + width <= bbox.left + bbox.width ? x + gap : x - gap - width // beside the line, never over it
      if (left > last) {
        ctx.fillText(text, left, bbox.top + 12 * devicePixelRatio)
        last = left + width + 8 * devicePixelRatio
      }
    }
    ctx.restore()
  }

  function make() {
    plot?.destroy()
    const axis = { stroke: color('quiet'), grid: { stroke: color('grid'), width: 1 }, ticks: { stroke: color('grid'), width: 1 }, font: '12px system-ui' }
    const apart = (values) => (values.length > 1 ? values[1] - values[0] : 60)
    plot = new uPlot({
      width: element.clientWidth || 600,
      height,
      legend: { show: true, live: true },
      padding: [10, 38, 0, 0],
      cursor: { drag: { x: true, y: false }, points: { size: 7 } },
      scales: { x: { time: xTime }, y: { range: (u, least, most) => [0, Math.max(1e-3, (most ?? 1) * 1.1)] } },
      series: [
        { label: xLabel, value: (u, value) => (value === null || value === undefined ? '–' : xTime ? moment(value) : xValue(value)) },
        ...lines.map((line, place) => ({
          label: line.label, stroke: color(line.color ?? COLORS[place % COLORS.length]), width: line.width ?? 2, dash: line.dash, spanGaps: Boolean(line.dash),
          points: { show: Boolean(line.points), size: 6, fill: color(line.color ?? COLORS[place % COLORS.length]) }, paths: line.points ? () => null : undefined,
          value: (u, value) => (value === null || value === undefined ? '–' : duration(value)),
        })),
      ],
      axes: [
        { ...axis, size: 32, space: narrow() ? 70 : 90, values: xTime ? (u, values) => values.map((value) => clock(value, apart(values))) : (u, values) => xFormat(values), incrs: xApart },
        { ...axis, size: narrow() ? 52 : 64, values: (u, values) => durations(values), incrs: APART },
      ],
      hooks: { draw: [drawMarks] },
    }, data, element)
  }

  const theme = matchMedia('(prefers-color-scheme: dark)')
  const resized = new ResizeObserver(() => { if (element.clientWidth) plot?.setSize({ width: element.clientWidth, height }) })
  resized.observe(element)
  theme.addEventListener('change', make)
  make()
  return {
    set: (values, newMarks = []) => { data = values; marks = newMarks; plot.setData(values) },
    close: () => { resized.disconnect(); theme.removeEventListener('change', make); plot.destroy() },
  }
}

// What a change was, in words; why, if the run changed something by itself, is in its notices.
export function changed(what) {
  return Object.entries(what).filter(([key]) => key !== 'why').map(([key, value]) => {
    const values = [value].flat()
    if (key === 'stop') return 'asked to stop'
    if (key === 'backfill') return `past of ${values[0]} again`
    return `${key} ${values.map((each) => (each === null ? 'none' : String(each))).join(' ')}`
  }).join(', ')
}
