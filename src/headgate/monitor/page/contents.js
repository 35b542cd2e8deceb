// What is in a table: rows, rejected rows, columns, partitions, versions, and how it is declared.

import { grid, h, replace } from './dom.js'
import { bytes, count, duration, moment } from './format.js'
import { ask, now, run } from './store.js'

export function contents(name, path) {
  const body = h('div', { class: 'stack' }, h('p', { class: 'quiet' }, 'Asking …'))
  const element = h('section', {}, h('div', { class: 'bar' }, h('h2', {}, 'What is in it'), h('button', { onclick: load }, 'read again')), body)

  async function load() {
    try { replace(body, shown(await ask(`${path}/contents`))) } catch (error) { replace(body, h('p', { class: 'bad' }, error.message)) }
  }

  load()
  return { element }
}

function shown(known) {
  const parts = []
  if (!known.exists) parts.push(h('p', { class: 'quiet' }, run.recorded ? 'Its files are not beside the recorded run any more.' : 'Nothing was committed to it yet.'))
  else {
    parts.push(h('p', {}, `${count(known.rows)} rows in ${count(known.files)} files, ${bytes(known.bytes)}, version ${known.version}`, run.recorded ? h('span', { class: 'quiet' }, ', as it is now') : null))
    parts.push(preview(known), rejected(known))
    parts.push(part('Columns', known.columns.length, grid(['column', 'type'], known.columns.map((each) => [each.name === known.time ? [h('b', {}, each.name), ''] : each.name, each.name === known.time ? `${each.type} (event time)` : each.type]), 'Columns')))
    parts.push(part('Partitions', known.partitions.length, grid(['begins at', ['newest row', 'its event time'], ['age', 'of its newest row'], 'rows', 'size', 'files', 'last written'],
      known.partitions.map((each) => [each.name ? moment(Date.parse(each.name) / 1000) : 'all', moment(each.last), each.last === null ? '–' : duration(Math.max(0, now() - each.last)), count(each.rows), bytes(each.bytes), String(each.files), each.written ? moment(each.written) : '–']), 'Partitions')))
    parts.push(part('Versions', known.versions.length, grid(['version', 'written', 'kind', 'update', 'rows added', 'rows removed'],
      known.versions.map((each) => [String(each.version), moment(each.at), each.kind, each.update === null ? 'maintenance' : String(each.update), count(each.added), count(each.removed)]), 'Versions')))
  }
  if (known.code) parts.push(part(known.code.language === 'sql' ? 'SQL' : known.code.language === 'python' ? 'Function' : 'Source', null,
    [h('p', { class: 'quiet' }, `${known.code.place}${known.code.mode ? ` · ${known.code.mode}` : ''}`), h('pre', { class: 'code' }, known.code.text || 'Its text is not at hand.')]))
  return parts
}

const part = (title, number, content, open = false) => h('details', { open }, h('summary', {}, title, number === null ? null : h('span', { class: 'quiet' }, ` ${number}`)), content)

function preview(known) {
  if (!known.previews) return h('p', { class: 'quiet' }, 'Rows are not shown: the run was started with --no-ui-previews.')
  return part('Rows', `${known.preview.rows.length} of the newest`, rowsOf(known.preview, 'Rows'), true)
}

function rejected(known) {
  if (!known.rejected?.rows.length) return null
  return part('Rejected rows', `the last ${known.rejected.rows.length}`, rowsOf(known.rejected, 'Rejected rows'), true)
}

const rowsOf = ({ columns, rows }, caption) => (rows.length ? grid(columns, rows.map((row) => row.map((cell, place) => [cell ?? 'null', cell === null ? 'quiet' : columns[place] === 'raw' ? 'raw' : ''])), caption) : h('p', { class: 'quiet' }, 'It has no rows.'))
