// What can be changed. Everything asks first, and shows what the run answers.

import { h, replace } from './dom.js'
import { command, run } from './store.js'

const dialog = document.getElementById('dialog')

// A question with fields; `act` is called with their values, and may throw what is then shown.
export function asked(title, text, fields, act, label = 'OK') {
  const inputs = fields.map(([name, caption, value, options]) => {
    const input = Array.isArray(options)
      ? h('select', { id: `field-${name}`, name }, options.map((each) => h('option', { value: each, selected: each === value }, each)))
      : h('input', { id: `field-${name}`, name, value: value ?? '', required: true, ...options })
    return [h('label', { for: `field-${name}` }, caption), input]
  })
  const problem = h('p', { class: 'bad', role: 'alert' })
  const submit = h('button', { type: 'submit', class: 'main' }, label)
  const form = h('form', { method: 'dialog', onsubmit: async (event) => {
    event.preventDefault()
    const values = Object.fromEntries(new FormData(form))
    submit.disabled = true
    try { await act(values); dialog.close() } catch (error) { problem.textContent = error.message } finally { submit.disabled = false }
  } },
  h('h2', { id: 'dialog-title' }, title), text ? h('p', {}, text) : null, inputs, problem,
  h('div', { class: 'buttons' }, h('button', { type: 'button', onclick: () => dialog.close() }, 'Cancel'), submit))
  dialog.setAttribute('aria-labelledby', 'dialog-title')
  replace(dialog, form)
  dialog.showModal()
}

export function choosePolicy() {
  const known = [...new Set([run.settings.policy, ...run.policies])].filter(Boolean)
  asked('Policy', 'Decides which table is updated next, from the next decision on.', [['policy', 'Policy', run.settings.policy, known]],
    ({ policy }) => command('replace_policy', { policy }), 'Change')
}

export function chooseTracks() {
  asked('Tracks', 'How many updates may run at the same time.', [['count', 'Tracks', String(run.settings.tracks), { type: 'number', min: '1', step: '1' }]],
    ({ count }) => command('set_tracks', { count: Number(count) }), 'Change')
}

export function stopRun() {
  asked('Stop the run?', 'Running updates are finished first. Tables stay as they are, and the next run goes on from there.', [],
    () => command('stop_soon', {}), 'Stop')
}

export const pause = (name) => asked(`Pause ${name}?`, 'No further update of it begins until it is resumed.', [], () => command('pause', { name }), 'Pause')
export const resume = (name) => asked(`Resume ${name}?`, 'It is updated again from now on.', [], () => command('resume', { name }), 'Resume')
export const refresh = (name) => asked(`Refresh ${name} now?`, 'It, and the tables that it is built on, are updated before all others.', [], () => command('refresh', { name }), 'Refresh')
export const setPriority = (name, priority) => asked(`Priority of ${name}`, 'From the next decision on, until the run ends.', [['priority', 'Priority', String(priority), { type: 'number', min: '0', step: 'any' }]],
  (values) => command('set_priority', { name, priority: Number(values.priority) }), 'Change')

export function backfill(name) {
  const local = (date) => new Date(date - date.getTimezoneOffset() * 60000).toISOString().slice(0, 16)
  const end = new Date()
  asked(`Compute the past of ${name} again`, 'Behind live updates, in parts; what is left is shown with the table.',
    [['first', 'From', local(new Date(end - 86400e3)), { type: 'datetime-local' }], ['last', 'To', local(end), { type: 'datetime-local' }]],
    ({ first, last }) => {
      const micros = (text) => {
        const date = new Date(text)
        if (Number.isNaN(date.valueOf())) throw new Error(`${text || 'nothing'} is no date; write it as 2026-01-31T14:00`)
        return date.valueOf() * 1000
      }
      return command('backfill', { name, first: micros(first), last: micros(last), chunk: null })
    }, 'Compute')
}

// A closed dialog leaves nothing behind that could be found by its label.
dialog.addEventListener('close', () => { replace(dialog); dialog.removeAttribute('aria-labelledby') })
