// A curve over time with marks, by uPlot. Sizes follow the element it is in, colours follow the theme.

import uPlot from './vendor/uplot.js'
import { color } from './dom.js'
import { duration } from './format.js'

const COLORS = ['accent', 'second', 'warn', 'bad']

export function curve(element, lines, { height = 200, format = duration, xTime = true, points = false } = {}) {
  let marks = []
  let data = [[], ...lines.map(() => [])]
  let plot = null

  function drawMarks(u) {
    const { ctx, bbox } = u
    ctx.save()
    ctx.strokeStyle = color('mark')
    ctx.fillStyle = color('mark')
    ctx.setLineDash([4, 4])
    ctx.font = `${11 * devicePixelRatio}px system-ui`
    let last = -Infinity
    for (const { at, text } of marks) {
      const x = u.valToPos(at, 'x', true)
      if (x < bbox.left || x > bbox.left + bbox.width) continue
      ctx.beginPath()
      ctx.moveTo(x, bbox.top)
      ctx.lineTo(x, bbox.top + bbox.height)
      ctx.stroke()
      if (x - last > 90 * devicePixelRatio) {
        const width = ctx.measureText(text).width
        ctx.fillText(text, Math.min(x + 4, bbox.left + bbox.width - width), bbox.top + 12 * devicePixelRatio)
        last = x
      }
    }
    ctx.restore()
  }

  function make() {
    plot?.destroy()
    const axis = { stroke: color('quiet'), grid: { stroke: color('grid'), width: 1 }, ticks: { stroke: color('grid'), width: 1 }, font: '12px system-ui' }
    plot = new uPlot({
      width: element.clientWidth || 600,
      height,
      legend: { show: lines.length > 1 },
      cursor: { drag: { x: true, y: false } },
      scales: { x: { time: xTime }, y: { range: (u, least, most) => [0, Math.max(1e-3, (most ?? 1) * 1.1)] } },
      series: [{}, ...lines.map((line, place) => ({
        label: line.label, stroke: color(COLORS[place % COLORS.length]), width: 2, dash: line.dash,
        points: { show: points && place === 0, size: 5 }, paths: points && place === 0 ? () => null : undefined,
        value: (u, value) => (value === null || value === undefined ? '–' : format(value)),
      }))],
      axes: [{ ...axis, values: xTime ? undefined : (u, values) => values.map((value) => String(value)) }, { ...axis, size: 64, values: (u, values) => values.map(format) }],
      hooks: { draw: [drawMarks] },
    }, data, element)
  }

  const theme = matchMedia('(prefers-color-scheme: dark)')
  const resized = new ResizeObserver(() => plot?.setSize({ width: element.clientWidth, height }))
  resized.observe(element)
  theme.addEventListener('change', make)
  make()
  return {
    set: (values, newMarks = []) => { data = values; marks = newMarks; plot.setData(values) },
    close: () => { resized.disconnect(); theme.removeEventListener('change', make); plot.destroy() },
  }
}
