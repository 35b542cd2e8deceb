// Numbers for people: a few digits, and always a unit.

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return '–'
  const size = Math.abs(seconds)
  if (size < 0.0995) return `${(seconds * 1000).toFixed(0)} ms`
  if (size < 9.95) return `${seconds.toFixed(1)} s`
  if (size < 119.5) return `${seconds.toFixed(0)} s`
  if (size < 5400) return `${(seconds / 60).toFixed(size < 600 ? 1 : 0)} min`
  if (size < 129600) return `${(seconds / 3600).toFixed(1)} h`
  return `${(seconds / 86400).toFixed(1)} d`
}

export function count(number) {
  if (number === null || number === undefined) return '–'
  if (number < 10000) return number.toLocaleString()
  for (const [unit, size] of [['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
    if (number >= size) return `${(number / size).toPrecision(3)} ${unit}`
  }
  return String(number)
}

export const share = (part) => (part === null || part === undefined ? '–' : `${(100 * part).toFixed(0)} %`)

const times = new Intl.DateTimeFormat(undefined, { timeStyle: 'medium' })
const dates = new Intl.DateTimeFormat(undefined, { dateStyle: 'medium', timeStyle: 'medium' })

export function moment(seconds) {
  if (seconds === null || seconds === undefined) return '–'
  const date = new Date(seconds * 1000)
  return Math.abs(Date.now() - date) < 43200e3 ? times.format(date) : dates.format(date)
}

export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone

export function number(value) {
  if (value === null || value === undefined) return '–'
  return Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-3) ? value.toExponential(2) : Number(value.toPrecision(4)).toString()
}
