// The frame around the views: which one is shown, the line at the top, and what needs a person.

import { h, replace } from './dom.js'
import { duration } from './format.js'
import { lag, onChange, run, start } from './store.js'
import { choosePolicy, chooseTracks, stopRun } from './actions.js'
import { overview } from './overview.js'
import { tracks } from './tracks.js'
import { graph } from './graph.js'
import { table } from './table.js'

const VIEWS = { '': ['Overview', overview], tracks: ['Tracks', tracks], graph: ['Graph', graph] }
const main = document.getElementById('main')
let shown = null // the view that is shown: {update, close}

function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, '').split('/')
  shown?.close?.()
  replace(main)
  if (name === 'table') shown = table(main, decodeURIComponent(rest.join('/')))
  else shown = (VIEWS[name] ?? VIEWS[''])[1](main)
  document.title = name === 'table' ? `${decodeURIComponent(rest.join('/'))} · ${run.warehouse}` : `${run.warehouse || 'Headgate'}`
  header()
}

function header() {
  const here = location.hash.replace(/^#\/?/, '').split('/')[0]
  const states = {
    live: ['live', 'live'], lost: ['not connected', 'bad'], ended: ['ended', 'quiet'], loading: ['loading', 'quiet'], failed: ['failed', 'bad'],
  }
  const [text, kind] = states[run.state]
  const mean = run.staleness.length ? run.staleness[run.staleness.length - 1][1] : null
  replace(
    document.getElementById('top'),
    h('a', { class: 'name', href: '#/' }, run.warehouse || 'Headgate'),
    h('span', { class: `dot ${kind}`, title: text }, text),
    h('nav', { 'aria-label': 'Views' }, Object.entries(VIEWS).map(([path, [title]]) =>
      h('a', { href: `#/${path}`, 'aria-current': here === path ? 'page' : null }, title))),
    h('span', { class: 'figure', title: 'mean staleness of all tables now, weighted by priority' }, 'staleness ', h('b', {}, duration(mean))),
    h('button', { onclick: choosePolicy, title: 'Which table is updated next' }, 'policy ', h('b', {}, run.settings.policy ?? '–')),
    h('button', { onclick: chooseTracks, title: 'How many updates run at once' }, 'tracks ', h('b', {}, String(run.settings.tracks ?? '–'))),
    h('button', { class: 'bad', onclick: stopRun }, 'stop'),
  )
}

// What needs a person, the worst first.
function banner() {
  const lines = []
  if (run.state === 'lost') lines.push(['bad', 'The run does not answer. If it was stopped or killed, start it again with headgate run; this page goes on by itself.'])
  if (run.state === 'ended') lines.push(['quiet', 'The run has ended. What you see is how it was at its end.'])
  if (run.state === 'failed') lines.push(['bad', `The run cannot be shown: ${run.error}`])
  const tables = [...run.tables.values()]
  const named = (those) => those.slice(0, 3).map((each) => h('a', { href: `#/table/${encodeURIComponent(each.name)}` }, each.name))
  const listed = (those) => {
    const links = named(those).flatMap((link, place) => (place ? [', ', link] : [link]))
    return those.length > 3 ? [...links, ` and ${those.length - 3} more`] : links
  }
  const held = tables.filter((each) => each.state === 'held' || each.state === 'stopped')
  if (held.length) lines.push(['bad', `${held.length} held until you resume: `, ...listed(held)])
  const late = tables.filter((each) => each.target && lag(each) > each.target)
  if (late.length) lines.push(['warn', `${late.length} later than their target: `, ...listed(late)])
  const silent = tables.filter((each) => each.state === 'no source')
  if (silent.length) lines.push(['warn', `${silent.length} without their source: `, ...listed(silent)])
  const rejected = tables.filter((each) => each.rejected > 0)
  if (rejected.length) lines.push(['warn', 'rejected rows in ', ...listed(rejected)])
  replace(document.getElementById('banner'), lines.map(([kind, ...text]) => h('p', { class: kind }, text)))
}

let waiting = false
onChange((what) => {
  if (what === 'all') { route(); banner(); return }
  if (waiting) return
  waiting = true
  requestAnimationFrame(() => {
    waiting = false
    header()
    banner()
    shown?.update?.(what)
  })
})
setInterval(() => { if (run.state === 'live') shown?.tick?.() }, 1000)
addEventListener('hashchange', route)
start()
