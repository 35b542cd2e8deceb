// What users should know of the run: the last notices, the newest first, folded when there are many.

import { h, replaceIf, setText, tableLink } from './dom.js'
import { moment } from './format.js'
import { run } from './store.js'

const MOST = 3 // that are not folded
const LONG = 240 // letters; a longer text is folded

export function notices() {
  const [latest, earlier] = [h('ul', {}), h('ul', {})]
  const count = h('summary', {})
  const folded = h('details', {}, count, earlier)
  const element = h('section', { class: 'notices', 'aria-label': 'Notices', hidden: true }, h('h2', {}, 'Notices'), latest, folded)

  function draw() {
    const newest = run.notices.slice().reverse()
    const key = (some) => JSON.stringify(some)
    element.hidden = newest.length === 0
    folded.hidden = newest.length <= MOST
    setText(count, `${newest.length - MOST} earlier`)
    replaceIf(latest, key(newest.slice(0, MOST)), () => newest.slice(0, MOST).map(notice))
    replaceIf(earlier, key(newest.slice(MOST)), () => newest.slice(MOST).map(notice))
  }

  draw()
  return { element, draw }
}

const notice = ({ at, table, text }) => h('li', {}, h('time', {}, moment(at)), ' ',
  table ? [run.tables.has(table) ? tableLink(table) : table, ': '] : null,
  text.length <= LONG ? text : h('details', {}, h('summary', {}, h('span', {}, `${text.slice(0, LONG)} …`)), text))
