// What is known of the run, kept up to date by the server's events. Views ask here, and are told when something changes.

export const run = {
  state: 'loading', // loading, live, lost, locked (it asks for another token), ended, failed
  error: '', // why it cannot be loaded
  warehouse: '',
  started: 0,
  at: 0,
  settings: {},
  policies: [],
  placements: [],
  tables: new Map(),
  updates: [],
  changes: [],
  notices: [],
  running: [],
  queue: [],
  staleness: [],
  bound: null, // how many times its lower bound the run is at, or why that is not known
  file_problem: '', // why the pipeline file, as it was saved last, is not used
  disk: null,
  trouble: '', // why the run does not go on as it should
  left: [], // tables whose update was cancelled and does not end
  read_only: false,
  what_if: true,
  recorded: false, // a run that is over, from its trace
  runs: [], // the recorded ones of this warehouse
}

// The recorded run that the address asks for; null for the one that goes on, or the newest.
export const chosen = new URLSearchParams(location.search).get('run')

const MOST_UPDATES = 2000 // as many as the server keeps
const MOST_POINTS = 1500
const MOST_ENTRIES = 200 // changes and notices, as many as the server keeps
const SPARK_POINTS = 60
const SILENT = 5000 // milliseconds without a visit, which is made every second, until the scheduler counts as silent
const AGAIN = 2000 // milliseconds until a connection that was refused is tried again
const [SOON, SELDOM] = [1000, 30000] // milliseconds until an overview that could not be loaded is asked for again: longer each time
const listeners = new Set()
let skew = 0 // of this machine's clock, in seconds
let heard = 0 // when this machine last got how everything stands, in milliseconds
let events = null
let waiting = [] // events that came while an overview is on its way, or could not be loaded
let loads = 0 // how often an overview was asked for: only the last answer counts
let failures = 0 // of the last ones
let later = null // when the next one is asked for
let known = new Set() // updates, changes and notices of the last overview, as text
let visits = 0
let sparkEvery = 2

export const heardOf = new Map() // {table: how many of its updates were told by events}
export const sparks = new Map() // {table: its staleness at the last visits, oldest first}

export function onChange(listener) {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

function tell(what) {
  for (const listener of listeners) listener(what)
}

// The time of the run: it stands still when the run has ended or cannot be reached.
export const now = () => (run.state === 'live' ? Date.now() / 1000 - skew : run.at)

// Whether the scheduler of a run that is there has not answered for a while. Its page may answer all the same.
export const isSilent = () => run.state === 'live' && !chosen && Date.now() - heard > SILENT

export const staleness = (table) => (table.complete === null || table.complete === undefined ? null : Math.max(0, now() - table.complete))
export const lag = (table) => (table.waiting_since ? Math.max(0, now() - table.waiting_since) : 0)
// The newest data that has arrived for it is more than a day old: as core.is_past.
export const isPast = (table) => (staleness(table) ?? 0) - lag(table) > 86400
// It has no rows yet, so no staleness either; what has rows but no event time never has one.
export const isEmpty = (table) => (table.complete === null || table.complete === undefined) && !table.rows && table.kind !== 'dimension'
export const isLate = (table) => Boolean(table.target) && lag(table) > table.target

// The moment from which on every update is among those that are kept: older ones are dropped as they ended.
export const keptSince = () => (run.updates.length < MOST_UPDATES ? run.started : run.updates[0].began + run.updates[0].seconds)

// For how long a source has given nothing, if that is much longer than usual; otherwise 0.
export function silence(table) {
  if (table.kind !== 'stream' || (table.updates ?? 0) < 3 || lag(table) > 0) return 0
  const quiet = now() - table.last_update
  const usual = Math.max(table.period ?? 0, (table.last_update - run.started) / table.updates)
  return quiet > Math.max(60, 10 * usual) ? quiet : 0
}

export async function start() {
  // Events first: what happens while the overview is on its way is not missed.
  await new Promise(listen)
  reload()
}

// `connected` is called once, when the events come or do not: then the overview may be asked for.
function listen(connected) {
  events = new EventSource('/api/events')
  const on = (kind, handle) => events.addEventListener(kind, (event) => {
    if (chosen) return
    const content = JSON.parse(event.data)
    if (waiting) waiting.push(() => handle(content))
    else handle(content)
  })
  on('seen', seen)
  on('update', (update) => {
    if (isKnown(update)) return
    run.updates.push(update)
    heardOf.set(update.table, (heardOf.get(update.table) ?? 0) + 1)
    if (run.updates.length > MOST_UPDATES) run.updates.splice(0, run.updates.length - MOST_UPDATES)
    tell('update')
  })
  on('change', (change) => { if (!isKnown(change)) { run.changes = latest(run.changes, change); tell('change') } })
  on('notice', (notice) => { if (!isKnown(notice)) { run.notices = latest(run.notices, notice); tell('notice') } })
  on('bound', (told) => { run.bound = told; tell('bound') })
  on('redeclared', reload)
  on('missed', reload)
  on('trouble', (told) => { takeTrouble(told); tell('state') })
  on('ended', (told) => { takeTrouble(told); run.state = 'ended'; run.read_only = true; tell('state') })
  let isFirst = Boolean(connected)
  events.onopen = () => {
    failures = 0
    // Whoever was not connected has missed something, and it may be another run.
    if (isFirst) connected()
    else reload()
    isFirst = false
  }
  events.onerror = () => {
    if (isFirst) connected()
    isFirst = false
    if (run.state === 'live' || (run.recorded && run.state === 'ended')) { run.state = 'lost'; run.error = ''; tell('state') }
    // A browser gives up when it was answered, but not with events.
    if (events.readyState !== EventSource.CLOSED) return
    setTimeout(listen, AGAIN)
    askWhetherLocked()
  }
}

// A browser does not tell why there are no events.
async function askWhetherLocked() {
  try {
    const { status } = await fetch('/healthz')
    if (status === 401 && run.state === 'lost') { run.state = 'locked'; tell('state') }
  } catch { /* it is lost */ }
}

// Whether an event is in the overview already, as it may have come while that was on its way.
const isKnown = (entry) => known.has(JSON.stringify(entry))

const latest = (entries, entry) => [...entries.slice(1 - MOST_ENTRIES), entry]

// A curve with one more point. It begins where it began: when it has too many points, every second one is dropped.
export function longer(points, point) {
  points.push(point)
  return points.length > MOST_POINTS ? points.filter((_, place) => place % 2 === 0) : points
}

// Ask how everything stands. Until that is known nothing else is taken in: it may be about another run than what is shown.
async function reload() {
  const turn = ++loads
  clearTimeout(later)
  waiting = []
  let overview
  try { overview = await ask('/api/overview') } catch (error) {
    if (turn === loads) notLoaded(error)
    return
  }
  if (turn !== loads) return
  const { tables, live, ...others } = overview
  Object.assign(run, others)
  run.tables = new Map(Object.entries(tables).map(([name, table]) => [name, { name, ...table }]))
  run.state = live ? 'live' : 'ended'
  run.recorded = !live && Boolean(others.run)
  run.error = ''
  failures = 0
  heard = Date.now()
  takeTrouble(others)
  known = new Set([...run.updates, ...run.changes, ...run.notices].map((each) => JSON.stringify(each)))
  skew = Date.now() / 1000 - run.at
  loadSparks()
  loadRuns()
  if (run.recorded && !run.bound) loadBound()
  const missed = waiting
  waiting = null
  for (const handle of missed) handle()
  tell('all')
}

function notLoaded(error) {
  const hasNothing = run.state === 'loading' || run.state === 'failed'
  run.state = hasNothing ? 'failed' : error.status === 401 ? 'locked' : 'lost'
  run.error = String(error.message ?? error)
  tell(hasNothing ? 'all' : 'state')
  // A recorded run that is not there will not be.
  if (chosen && error.status >= 400 && error.status < 500) return
  later = setTimeout(reload, Math.min(SELDOM, SOON * 2 ** failures++))
}

async function loadRuns() {
  try { run.runs = (await ask('/api/runs')).runs; tell('runs') } catch { /* those that are known stay */ }
}

async function loadSparks() {
  try {
    const { every, tables } = await ask('/api/sparks')
    sparkEvery = every
    sparks.clear()
    for (const [name, values] of Object.entries(tables)) sparks.set(name, values)
    tell('seen')
  } catch { /* they begin empty */ }
}

// Of a run that goes on it is told by an event; of one that is over it is computed when somebody asks.
async function loadBound() {
  try { run.bound = await ask('/api/bound') } catch (error) { run.bound = { times: null, why: String(error.message ?? error) } }
  tell('bound')
}

// `silent` is for how many seconds the scheduler has not answered the server.
function takeTrouble({ trouble = run.trouble, left = run.left, silent }) {
  run.trouble = trouble ?? ''
  run.left = left ?? []
  if (silent !== undefined) heard = Date.now() - 1000 * silent
}

function seen(different) {
  heard = Date.now()
  // Older than the overview, which has it all; much older, if the clock of the run was set back.
  if (different.at <= run.at && different.at > run.at - 60) return
  run.at = different.at
  takeTrouble(different)
  skew = Date.now() / 1000 - different.at
  run.settings = different.settings
  run.running = different.running
  run.queue = different.queue
  run.file_problem = different.file_problem ?? ''
  run.disk = different.disk ?? null
  run.staleness = longer(run.staleness, [different.at, different.staleness])
  for (const [name, fields] of Object.entries(different.tables)) {
    const table = run.tables.get(name)
    if (table) Object.assign(table, fields)
  }
  if (visits++ % sparkEvery === 0) remember()
  if (run.state !== 'live') { run.state = 'live'; tell('state') }
  tell('seen')
}

function remember() {
  for (const each of run.tables.values()) {
    const values = sparks.get(each.name) ?? []
    values.push(staleness(each))
    if (values.length > SPARK_POINTS) values.shift()
    sparks.set(each.name, values)
  }
}

const addressed = (path) => (chosen ? `${path}?run=${encodeURIComponent(chosen)}` : path)

export const ask = (path) => answered(fetch(addressed(path)))

export const command = async (name, parameters) => (await send(`/api/commands/${name}`, parameters)).answer

export const send = (path, content) => answered(fetch(addressed(path), {
  method: 'POST',
  headers: { 'content-type': 'application/json', 'x-headgate': '1' },
  body: JSON.stringify(content),
}))

async function answered(request) {
  let answer
  try { answer = await request } catch { throw new Error('The run does not answer. If it was stopped, start it again; then try once more.') }
  const text = await answer.text()
  let content
  try { content = JSON.parse(text) } catch { content = { error: text.trim() || `status ${answer.status}` } }
  if (!answer.ok) throw Object.assign(new Error(content.error), { status: answer.status })
  return content
}
