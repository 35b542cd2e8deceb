// What is known of the run, kept up to date by the server's events. Views ask here, and are told when something changes.

export const run = {
  state: 'loading', // loading, live, lost, ended, failed
  error: '',
  warehouse: '',
  started: 0,
  at: 0,
  settings: {},
  policies: [],
  tables: new Map(),
  updates: [],
  changes: [],
  notices: [],
  running: [],
  queue: [],
  staleness: [],
}

const MOST_UPDATES = 2000
const MOST_POINTS = 1500
const listeners = new Set()
let skew = 0 // of this machine's clock, in seconds
let events = null

export function onChange(listener) {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

function tell(what) {
  for (const listener of listeners) listener(what)
}

// The time of the run: it stands still when the run has ended or cannot be reached.
export const now = () => (run.state === 'live' ? Date.now() / 1000 - skew : run.at)

export const staleness = (table) => (table.complete === null || table.complete === undefined ? null : Math.max(0, now() - table.complete))
export const lag = (table) => (table.waiting_since ? Math.max(0, now() - table.waiting_since) : 0)
export const isPast = (table) => (staleness(table) ?? 0) > 86400 && lag(table) < 86400

export async function start() {
  await reload()
  events = new EventSource('/api/events')
  const on = (kind, handle) => events.addEventListener(kind, (event) => handle(JSON.parse(event.data)))
  on('seen', seen)
  on('update', (update) => {
    run.updates.push(update)
    if (run.updates.length > MOST_UPDATES) run.updates.splice(0, run.updates.length - MOST_UPDATES)
    tell('update')
  })
  on('change', (change) => { run.changes.push(change); tell('change') })
  on('notice', (notice) => { run.notices.push(notice); tell('notice') })
  on('redeclared', reload)
  on('missed', reload)
  on('ended', () => { run.state = 'ended'; tell('state') })
  events.onopen = () => { if (run.state === 'lost') reload() }
  events.onerror = () => {
    if (run.state === 'live') { run.state = 'lost'; tell('state') }
  }
}

async function reload() {
  try {
    const answer = await fetch('/api/overview')
    if (!answer.ok) throw new Error((await answer.text()).trim())
    const overview = await answer.json()
    const { tables, live, ...others } = overview
    Object.assign(run, others)
    run.tables = new Map(Object.entries(tables).map(([name, table]) => [name, { name, ...table }]))
    run.state = live ? 'live' : 'ended'
    skew = Date.now() / 1000 - run.at
  } catch (error) {
    if (run.state === 'loading') { run.state = 'failed'; run.error = String(error.message ?? error) }
  }
  tell('all')
}

function seen(different) {
  run.at = different.at
  skew = Date.now() / 1000 - different.at
  run.settings = different.settings
  run.running = different.running
  run.queue = different.queue
  run.staleness.push([different.at, different.staleness])
  if (run.staleness.length > MOST_POINTS) run.staleness = run.staleness.filter((_, place) => place % 2 === 0)
  for (const [name, fields] of Object.entries(different.tables)) {
    const table = run.tables.get(name)
    if (table) Object.assign(table, fields)
  }
  if (run.state !== 'live') { run.state = 'live'; tell('state') }
  tell('seen')
}

export async function ask(path) {
  const answer = await fetch(path)
  const content = await answer.json()
  if (!answer.ok) throw new Error(content.error)
  return content
}

export async function command(name, parameters) {
  const answer = await fetch(`/api/commands/${name}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-headgate': '1' },
    body: JSON.stringify(parameters),
  })
  const text = await answer.text()
  let content
  try { content = JSON.parse(text) } catch { content = { error: text.trim() } }
  if (!answer.ok) throw new Error(content.error)
  return content.answer
}
