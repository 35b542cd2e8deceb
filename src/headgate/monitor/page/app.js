// The frame around the views: which one is shown, the line at the top, and what needs a person.

import { h, replace, replaceIf, setText, tableLink } from './dom.js'
import { bytes, count, dated, duration, moment, zone } from './format.js'
import { chosen, isLate, isSilent, now, onChange, run, silence, start } from './store.js'
import { choosePolicy, chooseTracks, stopRun } from './actions.js'
import { overview } from './overview.js'
import { tracks } from './tracks.js'
import { graph } from './graph.js'
import { operators } from './operators.js'
import { whatIf } from './what_if.js'
import { table } from './table.js'

const VIEWS = {
  '': ['Overview', overview], tracks: ['Tracks', tracks], graph: ['Graph', graph], operators: ['Operators', operators], 'what-if': ['What if', whatIf],
}
const STATES = {
  live: ['live', 'live'], lost: ['not connected', 'bad'], locked: ['token needed', 'bad'], ended: ['ended', 'quiet'], loading: ['loading', 'quiet'], failed: ['failed', 'bad'],
}
const main = document.getElementById('main')
let shown = null // the view that is shown: {update, tick, close}

function route() {
  const [name, ...rest] = location.hash.replace(/^#\/?/, '').split('/')
  shown?.close?.()
  shown = null
  replace(main)
  const title = name === 'table' ? decodeURIComponent(rest.join('/')) : (VIEWS[name] ?? VIEWS[''])[0]
  document.title = `${title} · ${run.warehouse || 'Headgate'}`
  if (run.state === 'loading') replace(main, h('p', { class: 'quiet empty', role: 'status' }, 'Loading the run …'))
  else if (run.state === 'failed') replace(main, failed())
  else if (name === 'table') shown = table(main, title)
  else shown = (VIEWS[name] ?? VIEWS[''])[1](main)
  header()
}

const failed = () => h('div', { class: 'empty', role: 'alert' }, h('h1', {}, 'The run cannot be shown'), h('p', { class: 'bad' }, run.error),
  h('p', {}, chosen ? h('a', { href: '/' }, 'Show the newest run') : 'Look at the terminal of headgate run for more; this page tries again by itself.'))

// --- the line at the top: made once, then only its texts change, so that what is focused stays -------------------

const parts = {
  name: h('a', { class: 'name', href: '#/' }),
  dot: h('span', { class: 'dot', role: 'status' }),
  nav: h('nav', { 'aria-label': 'Views' }, Object.entries(VIEWS).map(([path, [title]]) => h('a', { href: `#/${path}`, 'data-path': path }, title))),
  figure: h('b', {}),
  policy: h('b', {}),
  tracks: h('b', {}),
  buttons: h('span', { class: 'buttons' }),
  runs: h('select', { 'aria-label': 'Run', hidden: true, onchange: () => { location.search = parts.runs.value ? `?run=${encodeURIComponent(parts.runs.value)}` : '' } }),
}
parts.buttons.append(
  h('button', { onclick: choosePolicy, title: 'Which table is updated next' }, 'policy ', parts.policy),
  h('button', { onclick: chooseTracks, title: 'How many updates run at once' }, 'tracks ', parts.tracks),
  h('button', { class: 'bad change', onclick: stopRun }, 'stop'))
document.getElementById('top').append(parts.name, parts.dot, parts.nav,
  h('span', { class: 'figure', title: 'mean staleness of all tables now, weighted by priority' }, 'staleness ', parts.figure), parts.buttons, parts.runs)
document.getElementById('foot').append(`Times are those of ${zone}.`)

function header() {
  const here = location.hash.replace(/^#\/?/, '').split('/')[0]
  const [text, kind] = run.recorded && run.state === 'ended' ? ['recorded', 'quiet'] : isSilent() || troubled() ? ['stuck', 'bad'] : STATES[run.state]
  setText(parts.name, run.warehouse || 'Headgate')
  setText(parts.dot, text)
  parts.dot.className = `dot ${kind}`
  for (const link of parts.nav.children) {
    if (link.dataset.path === (here in VIEWS ? here : '') && here !== 'table') link.setAttribute('aria-current', 'page')
    else link.removeAttribute('aria-current')
  }
  setText(parts.figure, duration(run.staleness.length ? run.staleness[run.staleness.length - 1][1] : null))
  setText(parts.policy, run.settings.policy ?? '–')
  setText(parts.tracks, String(run.settings.tracks ?? '–'))
  document.body.classList.toggle('read-only', run.read_only)
  for (const button of parts.buttons.children) button.disabled = run.read_only || run.state !== 'live'
  const listed = run.runs.filter((each) => !each.live)
  parts.runs.hidden = listed.length === 0 || (run.recorded && !chosen && listed.length < 2)
  replaceIf(parts.runs, JSON.stringify([run.runs, chosen]), () => [
    h('option', { value: '', selected: !chosen }, run.runs.some((each) => each.live) ? 'the run that goes on' : 'the newest run'),
    ...listed.map((each) => h('option', { value: each.name, selected: each.name === chosen }, dated(each.started)))])
}

// --- what needs a person, the worst first ------------------------------------------------------------------------

function banner() {
  const lines = [] // [kind, text, tables, what is told of each]
  if (run.state === 'lost') lines.push(['bad', run.error ? `How the run stands cannot be loaded: ${sentence(run.error)}. These are the last numbers; this page tries again by itself.`
    : 'The run does not answer: these are its last numbers. If it was stopped or killed, start it again with headgate run; this page goes on by itself.'])
  if (run.state === 'locked') lines.push(['bad', 'A run answers, but it is not the one that this browser has a token for. It needs a new token: open the address that headgate run has printed on its terminal, or /login?token=… with that of HEADGATE_TOKEN. These are the last numbers.'])
  if (run.recorded && run.state === 'ended') lines.push(['quiet', `A recorded run, as it was at its end (${dated(run.at)}). Nothing can be changed.`])
  else if (run.state === 'ended') lines.push(['quiet', 'The run has ended. What you see is how it was at its end; start it again with headgate run, and this page goes on.'])
  else if (run.state === 'live' && run.read_only) lines.push(['quiet', 'This page is read-only: the run was started with --ui-read-only.'])
  if (isSilent()) lines.push(['bad', `The scheduler has not answered since ${moment(run.at)}: states and queue are those of then. If it does not come back, look at the terminal of headgate run; a run that is started again goes on from the last commits.`])
  else if (troubled()) lines.push(['bad', `${sentence(run.trouble)}.`])
  if (run.file_problem) lines.push(['bad', `${refusal(run.file_problem)} The run goes on as the file was before; mend it and save it again.`])
  const { disk } = run
  if (disk && (disk.free < 0.1 * disk.total || disk.free < 1e9)) lines.push(['bad', `The disk is filling: ${bytes(disk.free)} of ${bytes(disk.total)} are free. Updates fail when it is full: make room.`])
  const found = { stopped: [], left: run.left.map((name) => run.tables.get(name)).filter(Boolean), held: [], unmeetable: [], late: [], missing: [], silent: [], rejected: [] }
  for (const each of run.tables.values()) {
    if (each.state === 'stopped') found.stopped.push(each)
    if (each.state === 'held') found.held.push(each)
    if (each.target_note) found.unmeetable.push(each)
    if (isLate(each)) found.late.push(each)
    if (each.state === 'no source') found.missing.push(each)
    if (silence(each)) found.silent.push(each)
    if (each.rejected > 0) found.rejected.push(each)
  }
  found.late.sort((a, b) => b.priority - a.priority)
  const some = (text, kind, those, told) => { if (those.length) lines.push([kind, `${text}: `, those, told]) }
  // All tables are stopped at once, when the run itself has failed, and all say why.
  if (found.stopped.length) lines.push(['bad', `${sentence(failure(found.stopped[0].error))}. No table is updated any more: start it again with headgate run.`])
  some('Cancelled, but the update does not end; all others go on', 'bad', found.left)
  some(`${found.held.length} held until you resume`, 'bad', found.held)
  some('Target cannot be met', 'warn', found.unmeetable)
  some(`${found.late.length} later than their target`, 'warn', found.late)
  some('Source missing', 'warn', found.missing)
  some('Sources silent for longer than usual', 'warn', found.silent, (each) => ` (${duration(silence(each))})`)
  some('Rows were rejected', 'warn', found.rejected, (each) => ` (${count(each.rejected)})`)
  // Made anew only if it says something else, so that what is focused stays; silence grows, and is told every ten seconds.
  const key = JSON.stringify([lines.map(([kind, text, those = []]) => [kind, text, those.length, those.slice(0, 3).map((each) => [each.name, each.rejected])]), found.silent.length && Math.floor(now() / 10)]).replace(/\b\d+ s\b/g, '')
  replaceIf(document.getElementById('banner'), key, () => lines.map(([kind, text, those = [], told = () => '']) => h('p', { class: kind }, text,
    those.slice(0, 3).flatMap((each, place) => [place ? ', ' : '', tableLink(each.name), told(each)]), those.length > 3 ? ` and ${those.length - 3} more` : '')))
}

// A run that ends is troubled for a moment, until it says that it has ended.
const troubled = () => run.state === 'live' && run.trouble && !run.trouble.startsWith('the run has ended')
// Errors may be withheld.
const failure = (error) => (error?.startsWith('the run has failed') ? error : 'the run has failed')
const refusal = (problem) => (problem.startsWith('withheld') ? 'The pipeline file has changed, but cannot be used.' : /[.?!]$/.test(problem) ? problem : `${problem}.`)
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1).replace(/\.$/, '')

let waiting = false
const told = new Set()
onChange((what) => {
  if (what === 'all') { route(); banner(); return }
  told.add(what)
  if (waiting) return
  waiting = true
  requestAnimationFrame(() => {
    waiting = false
    header()
    banner()
    for (const each of told) shown?.update?.(each)
    told.clear()
  })
})
setInterval(() => {
  if (run.state !== 'live') return
  shown?.tick?.()
  if (isSilent()) { header(); banner() }
}, 1000)
addEventListener('hashchange', () => { route(); main.focus({ preventScroll: true }); scrollTo(0, 0) })
start()
document.querySelector('.skip').addEventListener('click', (event) => { event.preventDefault(); main.focus() })
