// Numbers for people: a few digits, always a unit, and the viewer's time zone.

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return '–'
  const size = Math.abs(seconds)
  if (size === 0) return '0 s'
  if (size < 9.95e-5) return `${Number((seconds * 1e6).toPrecision(2))} µs`
  if (size < 9.95e-3) return `${Number((seconds * 1e3).toPrecision(2))} ms`
  if (size < 0.0995) return `${(seconds * 1000).toFixed(0)} ms`
  if (size < 9.95) return `${seconds.toFixed(1)} s`
  if (size < 119.5) return `${seconds.toFixed(0)} s`
  if (size < 5400) return `${(seconds / 60).toFixed(size < 600 ? 1 : 0)} min`
  if (size < 129600) return `${(seconds / 3600).toFixed(1)} h`
  return `${(seconds / 86400).toFixed(1)} d`
}

const UNITS = [['d', 86400], ['h', 3600], ['min', 60], ['s', 1], ['ms', 1e-3], ['µs', 1e-6]]
const tidy = (value) => Math.abs(value * 10 - Math.round(value * 10)) < 1e-6 * Math.max(1, value)

// Lengths of time on one axis, all in the same unit: the largest that needs no more than one decimal.
export function durations(values) {
  const most = Math.max(...values.map(Math.abs))
  const apart = values.length > 1 ? Math.abs(values[1] - values[0]) : most
  const [unit, size] = UNITS.find(([, each]) => most >= (each > 1 ? 2 : 1) * each && tidy(apart / each)) ?? UNITS[most > 0 ? UNITS.length - 1 : 3]
  const decimals = Math.abs(apart / size - Math.round(apart / size)) < 1e-6 ? 0 : 1
  return values.map((value) => `${(value / size).toFixed(decimals)} ${unit}`)
}

// Amounts of something on one axis, likewise.
export function counts(values, unit) {
  const most = Math.max(...values.map(Math.abs))
  const [prefix, size] = [['G', 1e9], ['M', 1e6], ['k', 1e3]].find(([, each]) => most >= 10 * each) ?? ['', 1]
  return values.map((value) => `${Number((value / size).toPrecision(6)).toLocaleString()} ${prefix ? `${prefix} ` : ''}${unit}`)
}

// 1, 2 and 5 times every power of ten from one to before another; read from text, so that no last bit is wrong.
function rounded(from, to) {
  return Array.from({ length: to - from }, (_, place) => [1, 2, 5].map((each) => Number(`${each}e${from + place}`))).flat()
}
export const COUNTED = rounded(0, 16)

// How far apart the marks of such an axis may be, in seconds: round numbers of the unit that they are shown in.
export const APART = [
  ...rounded(-6, 1), 10, 15, 30,
  ...[60, 3600].flatMap((each) => [1, 2, 5, 10, 15, 30].map((times) => times * each)).filter((each) => each < 43200), 43200,
  ...[1, 10, 100, 1000].flatMap((each) => [1, 2, 5].map((times) => times * each * 86400)),
]

export const difference = (seconds) => (seconds === null || seconds === undefined ? '–' : `${seconds > 0 ? '+' : seconds < 0 ? '−' : '±'}${duration(Math.abs(seconds))}`)

export function count(number) {
  if (number === null || number === undefined) return '–'
  if (number < 10000) return number.toLocaleString()
  for (const [unit, size] of [['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
    if (number >= size) return `${(number / size).toPrecision(3)} ${unit}`
  }
  return String(number)
}

export function bytes(number) {
  if (number === null || number === undefined) return '–'
  for (const [unit, size] of [['TB', 1e12], ['GB', 1e9], ['MB', 1e6], ['kB', 1e3]]) {
    if (number >= size) return `${(number / size).toPrecision(3)} ${unit}`
  }
  return `${number} B`
}

export const share = (part) => (part === null || part === undefined ? '–' : `${(100 * part).toFixed(part < 0.0995 && part >= 0.0005 ? 1 : 0)} %`)

const times = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' })
const short = new Intl.DateTimeFormat(undefined, { timeStyle: 'short' })
const dates = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' })
const days = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' })

export function moment(seconds) {
  if (seconds === null || seconds === undefined) return '–'
  const date = new Date(seconds * 1000)
  return Math.abs(Date.now() - date) < 43200e3 ? times.format(date) : dates.format(date)
}

export const dated = (seconds) => dates.format(new Date(seconds * 1000))

// A moment on an axis whose marks are so many seconds apart.
export function clock(seconds, apart) {
  const date = new Date(seconds * 1000)
  return apart >= 86400 ? days.format(date) : apart >= 60 ? short.format(date) : times.format(date)
}

export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone

export function number(value) {
  if (value === null || value === undefined) return '–'
  return Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2) : Number(value.toPrecision(4)).toString()
}
