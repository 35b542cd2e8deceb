// Why a table is or is not updated: now, at the last decisions, and what would have to change.

import { grid, h, replace, tableLink } from './dom.js'
import { duration, moment, number } from './format.js'
import { ask, now, run } from './store.js'

const REASONS = { policy: 'by the policy', guard: 'it had waited longer than its patience' }

// A policy that puts the earliest first gives a moment, negated: it is told from the moment of the decision.
const value = (each, at) => (each > -1e8 ? number(each) : -each <= at ? `${duration(at + each)} ago` : `in ${duration(-each - at)}`)

export function why(name, path) {
  const answer = h('div', { class: 'why', role: 'status' }, h('p', { class: 'quiet' }, 'Asking …'))
  const element = h('section', {}, h('div', { class: 'bar' }, h('h2', {}, 'Why?'), h('button', { onclick: explain }, 'ask again')), answer)

  async function explain() {
    try { replace(answer, told(await ask(`${path}/why`))) } catch (error) { replace(answer, h('p', { class: 'bad' }, error.message)) }
  }

  function told(known) {
    const begins = known.begins === null ? null : h('p', {}, known.begins < 0.5 ? 'Its next update is expected to begin at once.' : `Its next update is expected to begin in about ${duration(known.begins)}, if the queue stays as it is.`)
    const comes = known.begins !== null || !known.expected ? null : h('p', {}, known.expected <= now() ? 'More data is expected at any moment; its next update begins when a track is free.' : `More data is expected in about ${duration(known.expected - now())}; its next update begins then, when a track is free.`)
    const others = instead(known.decisions)
    const ran = others.length ? h('p', {}, `At the last ${known.decisions.length} decisions at which it could have run, these ran instead: `,
      others.slice(0, 5).flatMap(([each, times], place) => [place ? ', ' : '', linked(each), ` (${times} ×)`]), '.') : null
    return [h('pre', {}, known.text), begins, comes, ran,
      h('h3', {}, 'To meet its target'), h('ul', {}, known.needs.map((each) => h('li', {}, each))),
      known.decisions.length ? [h('h3', {}, 'The last decisions'), known.decisions.slice(0, 10).map((decision, place) => h('details', { open: place === 0 },
        h('summary', {}, `${moment(decision.at)}: `, h('b', {}, decision.chosen), ` on track ${decision.track}, ${REASONS[decision.reason] ?? decision.reason}`),
        ranking(decision, known.policy)))] : null]
  }

  // [what ran, how often], counted over the decisions that are shown, so that the numbers fit together.
  function instead(decisions) {
    const times = new Map()
    for (const { chosen } of decisions) if (chosen !== name) times.set(chosen, (times.get(chosen) ?? 0) + 1)
    return [...times].sort(([, a], [, b]) => b - a)
  }

  // The best, and the table itself, whose place the server tells if it is so far behind that not all before it are sent.
  function ranking(decision, policy) {
    const all = decision.ranking.map((entry, place) => ({ place: place + 1, ...entry }))
    const rows = all.filter((entry, place) => place < 8 || entry.name === name || entry.name === decision.chosen)
    return grid(['place', 'table', [`value by ${policy}`, 'larger goes first'], 'waited'], rows.map((entry) => {
      const kind = entry.name === name ? 'self' : entry.name === decision.chosen ? 'chosen' : ''
      return [[`${entry.place}.`, kind], [linked(entry.name), kind], [entry.priority.map((each) => value(each, decision.at)).join(', '), kind], [duration(entry.waiting), kind]]
    }), 'Ranking')
  }

  const linked = (each) => (run.tables.has(each) ? tableLink(each) : each)

  explain()
  return { element }
}
