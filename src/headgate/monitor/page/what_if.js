// What would have happened under other settings: the run replayed in the simulator, beside what it was.

import { grid, h, replace, tableLink } from './dom.js'
import { difference, duration, number } from './format.js'
import { curve } from './curve.js'
import { run, send } from './store.js'

const SAME = '' // the value of a field that leaves a setting as it is

// What was asked and answered last stays when the view is left.
const kept = { policy: SAME, placement: SAME, tracks: '', without: SAME, priorities: [], answer: null }

export function whatIf(main) {
  const changedLater = (name) => run.changes.some((change) => name in change.what)
  const same = (name) => `as it was${run.settings[name] === undefined ? '' : changedLater(name) ? ', with its changes' : ` (${run.settings[name]})`}`
  const choice = (name, label, options, others) => field(name, label, h('select', { id: `what-${name}`, onchange: (event) => { kept[name] = event.target.value } },
    h('option', { value: SAME }, others), options.map((each) => h('option', { value: each, selected: kept[name] === each }, each))))
  const names = [...run.tables.keys()].sort()
  const priorities = h('div', { class: 'stack tight' })
  const button = h('button', { type: 'submit', class: 'main' }, 'Replay')
  const problem = h('p', { class: 'bad', role: 'alert' })
  const waits = h('p', { class: 'quiet', role: 'status' })
  const result = h('div', { class: 'stack' })
  const form = h('form', { class: 'what-if', onsubmit: (event) => { event.preventDefault(); replay() } },
    choice('policy', 'Policy', run.policies.filter((each) => each !== 'auto'), same('policy')), choice('placement', 'Placement', run.placements, same('placement')),
    field('tracks', 'Tracks', h('input', { id: 'what-tracks', type: 'number', min: '1', step: '1', placeholder: same('tracks'), value: kept.tracks, oninput: (event) => { kept.tracks = event.target.value } })),
    choice('without', 'Without the table', names, 'none left out'),
    h('div', { class: 'field wide' }, h('span', {}, 'Priorities'), priorities, h('button', { type: 'button', onclick: () => { kept.priorities.push(['', '']); drawPriorities() } }, 'another priority')),
    h('div', { class: 'field' }, button))
  main.append(h('section', {}, h('h1', {}, 'What if'), h('p', { class: 'quiet' },
    'Replays this run, as far as it is recorded, in the simulator: once as it was, with all changes that were made, and once under the settings that you choose here. Nothing of the run is changed.'), form, problem, waits), result)
  let chart = null

  if (!run.what_if) {
    replace(form, h('p', {}, 'This page is read-only, so nothing is replayed. Do it on the machine itself with headgate simulate and the trace of the run.'))
    return {}
  }

  function drawPriorities() {
    replace(priorities, kept.priorities.map((pair, place) => h('div', { class: 'pair' },
      h('select', { 'aria-label': 'Table', onchange: (event) => { pair[0] = event.target.value; pair[1] ||= String(run.tables.get(pair[0])?.priority ?? ''); drawPriorities() } },
        h('option', { value: '' }, 'choose a table'), names.map((each) => h('option', { value: each, selected: each === pair[0] }, each))),
      h('input', { type: 'number', min: '0', step: 'any', 'aria-label': 'Priority', value: pair[1], oninput: (event) => { pair[1] = event.target.value } }),
      h('button', { type: 'button', 'aria-label': 'Remove', onclick: () => { kept.priorities.splice(place, 1); drawPriorities() } }, '×'))))
  }

  function question() {
    const asked = {}
    if (kept.policy) asked.policy = kept.policy
    if (kept.placement) asked.placement = kept.placement
    if (kept.tracks) asked.tracks = Number(kept.tracks)
    if (kept.without) asked.without = [kept.without]
    const changed = kept.priorities.filter(([name, value]) => name && value !== '')
    if (changed.length) asked.priorities = Object.fromEntries(changed.map(([name, value]) => [name, Number(value)]))
    return asked
  }

  async function replay() {
    button.disabled = true
    problem.textContent = ''
    waits.textContent = 'Replaying the run twice; this takes some seconds, a minute at most.'
    try {
      kept.answer = await send('/api/what-if', question())
      show()
    } catch (error) { problem.textContent = error.message } finally { button.disabled = false; waits.textContent = '' }
  }

  function show() {
    const { answer } = kept
    if (!answer) return
    chart?.close()
    const picture = h('div', { class: 'chart', role: 'img', 'aria-label': 'Weighted staleness as it was and under other settings' })
    const mean = (points) => { const known = points.map(([, value]) => value).filter((value) => value !== null); return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null }
    const [before, after, measured] = [mean(answer.before), mean(answer.after), mean(answer.measured)]
    const better = before === null || after === null ? null : (after - before) / before
    const told = (settings) => `${settings.policy}, ${settings.placement}, ${settings.tracks} ${settings.tracks === '1' ? 'track' : 'tracks'}`
    const tables = [...answer.tables].sort((a, b) => Math.abs(b.difference * b.priority) - Math.abs(a.difference * a.priority))
    const most = Math.max(1e-9, ...tables.map((each) => Math.abs(each.difference)))
    replace(result,
      h('section', {}, h('h2', {}, 'Staleness, weighted by priority'),
        h('div', { class: 'figures' },
          figure('as it was, simulated', duration(before), told(answer.before_settings)), figure('what if, simulated', duration(after), told(answer.after_settings)),
          figure('difference', difference(before === null || after === null ? null : after - before), better === null || !Number.isFinite(better) ? '' : Math.abs(better) < 0.005 ? '0 %' : `${better > 0 ? '+' : '−'}${Math.abs(100 * better).toFixed(0)} %`, better === null ? '' : better < -0.005 ? 'good' : better > 0.005 ? 'bad' : ''),
          figure('measured', duration(measured), 'what happened; compare the two simulated ones')),
        picture),
      h('section', {}, h('h2', {}, 'Tables'), answer.left_out.length ? h('p', { class: 'quiet' }, `Left out: ${answer.left_out.join(', ')}.`) : null,
        grid(['table', 'priority', 'measured', 'as it was', 'what if', 'difference', '', 'updates, as it was', 'updates, what if'],
          tables.map((each) => [tableLink(each.name), number(each.priority), duration(each.measured), duration(each.before), duration(each.after),
            [difference(each.difference), each.difference < -1e-3 ? 'good' : each.difference > 1e-3 ? 'bad' : ''], bar(each.difference / most), String(each.updates_before), String(each.updates_after)]), 'Mean staleness of each table')))
    chart = curve(picture, [{ label: 'measured', color: 'quiet', dash: [3, 4], width: 1.5 }, { label: 'as it was, simulated', color: 'accent' }, { label: 'what if, simulated', color: 'second' }], { height: 240 })
    chart.set([answer.before.map(([at]) => at), answer.measured.map(([, value]) => value), answer.before.map(([, value]) => value), answer.after.map(([, value]) => value)])
  }

  drawPriorities()
  show()
  return { close: () => chart?.close() }
}

const field = (name, label, input) => h('div', { class: 'field' }, h('label', { for: `what-${name}` }, label), input)

const figure = (label, value, note, kind) => h('div', { class: 'big' }, h('span', { class: 'quiet' }, label), h('b', { class: kind }, value), h('span', { class: 'quiet' }, note))

// To the left if a table becomes fresher, to the right if it becomes staler.
function bar(part) {
  const inside = h('i', { class: part < 0 ? 'less' : 'more', style: { width: `${Math.abs(part) * 50}%`, left: part < 0 ? `${50 - Math.abs(part) * 50}%` : '50%' } })
  return h('span', { class: 'balance', 'aria-hidden': 'true' }, inside)
}
