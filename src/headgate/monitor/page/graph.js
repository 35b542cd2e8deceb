// Which table is computed from which, left to right; colour by staleness against the target.

import { h, replace, setText, svg } from './dom.js'
import { count, duration } from './format.js'
import { layered, short, thickness } from './layered.js'
import { isLate, lag, run, staleness } from './store.js'

const [WIDTH, HEIGHT] = [164, 42]

const MOST = 300 // tables in one picture: to lay out more takes many seconds, and nobody reads them

export function graph(main) {
  const large = run.tables.size > MOST
  const picture = h('div', { class: 'graph', tabindex: '0', role: 'region', 'aria-label': 'Graph of tables' })
  const zoom = h('input', { type: 'range', min: '0.1', max: '2', step: '0.01', value: '1', 'aria-label': 'Zoom', oninput: size })
  const find = h('input', { type: 'search', list: 'graph-names', placeholder: large ? 'Part of a name' : 'Find a table', 'aria-label': 'Find a table', oninput: () => { clearTimeout(later); later = setTimeout(found, large ? 300 : 0) } })
  const said = h('span', { class: 'quiet', role: 'status' }, 'Point at a table to see what it is built on and what is built on it.')
  main.append(h('section', { class: 'grow' }, h('div', { class: 'bar' }, h('h1', {}, 'Graph'), find,
    large ? null : h('datalist', { id: 'graph-names' }, [...run.tables.keys()].map((name) => h('option', { value: name }))),
    h('label', {}, 'zoom ', zoom), h('button', { onclick: () => fit(0.1) }, 'fit'), said), picture, legend()))
  if (!run.tables.size) { picture.append(h('p', { class: 'quiet empty' }, 'There is no table yet: declare one in the pipeline file and save it.')); return {} }

  const below = new Map([...run.tables.keys()].map((name) => [name, []]))
  for (const each of run.tables.values()) for (const source of each.sources) below.get(source)?.push(each.name)
  const above = (name) => (run.tables.get(name)?.sources ?? []).filter((each) => run.tables.has(each))
  let subs = new Map()
  let drawing = null
  let pinned = null // the table that was found
  let later = null
  let giveUp = () => {} // a picture that is being laid out

  function build(names) {
    const shown = new Set(names)
    subs = new Map()
    giveUp()
    replace(picture, h('p', { class: 'quiet empty', role: 'status' }, `Laying out ${names.length} tables …`))
    giveUp = layered(names, names.flatMap((name) => above(name).filter((source) => shown.has(source)).map((source) => [source, name])), WIDTH, HEIGHT, (name) => {
      const sub = svg('text', { x: 9, y: 33, class: 'sub' })
      subs.set(name, sub)
      return svg('a', { href: `#/table/${encodeURIComponent(name)}`, class: 'node', 'aria-label': name,
        onmouseenter: () => highlight(name), onmouseleave: () => highlight(pinned), onfocus: () => highlight(name), onblur: () => highlight(pinned) },
      svg('title', {}, name), svg('rect', { width: WIDTH, height: HEIGHT, rx: 7 }), svg('text', { x: 9, y: 17 }, short(name, 21)), sub)
    }, (made) => {
      drawing = made
      replace(picture, drawing.picture)
      draw()
      fit(0.6)
      show()
    }, (why) => replace(picture, h('p', { class: 'bad', role: 'alert' }, `The graph cannot be drawn: ${why}`)))
  }

  // The table that was found, if there is one.
  function show() {
    highlight(pinned)
    if (pinned) drawing?.boxes.get(pinned)?.scrollIntoView({ block: 'center', inline: 'center' })
  }

  function size() {
    drawing?.picture.setAttribute('width', drawing.width * zoom.value)
    drawing?.picture.setAttribute('height', drawing.height * zoom.value)
  }

  // All of it, but nothing smaller than `least`.
  function fit(least) {
    if (!drawing) return
    const room = Math.min(picture.clientWidth / drawing.width, picture.clientHeight / drawing.height, 1.2)
    zoom.value = String(Math.floor(100 * Math.max(least, room)) / 100)
    size()
  }

  function found() {
    pinned = run.tables.has(find.value) ? find.value : null
    if (large) narrow()
    show()
    if (!large || pinned) setText(said, find.value && !pinned ? 'There is no table of this name; go on typing or choose one.' : pinned ? path(pinned) : '')
  }

  // Of many tables only those that fit what is typed, with what they are built on and what is built on them.
  function narrow() {
    const wanted = find.value.trim().toLowerCase()
    const fitting = wanted ? [...run.tables.keys()].filter((name) => name.toLowerCase().includes(wanted)).sort((a, b) => (b === find.value) - (a === find.value)) : []
    const names = new Set()
    let taken = 0
    for (const name of fitting) {
      const near = [name, ...reach(name, above), ...reach(name, (each) => below.get(each))].filter((each) => !names.has(each))
      if (names.size && names.size + near.length > MOST) break
      for (const each of near.slice(0, MOST)) names.add(each)
      taken++
    }
    drawing = null
    giveUp()
    if (names.size) build([...run.tables.keys()].filter((name) => names.has(name)))
    else replace(picture, h('p', { class: 'quiet empty' }, `${count(run.tables.size)} tables are too many for one picture: type part of a name to see the tables that fit, what they are built on and what is built on them.`))
    setText(said, !wanted ? '' : !fitting.length ? 'No table fits.' : `${taken < fitting.length ? `The first ${taken} of ` : ''}${fitting.length} that fit, and ${names.size - taken} around them.`)
  }

  function path(name) {
    return `${name} is built on ${reach(name, above).size} tables; ${reach(name, (each) => below.get(each)).size} are built on it.`
  }

  function reach(name, next) {
    const near = new Set()
    const todo = [name]
    while (todo.length) for (const other of next(todo.pop()) ?? []) if (!near.has(other)) { near.add(other); todo.push(other) }
    return near
  }

  function highlight(name) {
    if (!drawing) return
    const near = name === null ? null : new Set([name, ...reach(name, above), ...reach(name, (each) => below.get(each))])
    for (const [each, box] of drawing.boxes) { box.classList.toggle('far', near !== null && !near.has(each)); box.classList.toggle('self', each === name) }
    for (const { from, to, element } of drawing.lines) {
      const own = near !== null && near.has(from) && near.has(to)
      element.classList.toggle('far', near !== null && !own)
      element.classList.toggle('own', own)
    }
  }

  function draw() {
    if (!drawing) return
    const most = Math.max(...[...run.tables.values()].map((each) => each.rows ?? 0))
    for (const [name, box] of drawing.boxes) {
      const each = run.tables.get(name)
      if (!each) continue
      for (const other of ['good', 'warn', 'bad', 'plain']) box.classList.toggle(other, other === kind(each))
      setText(subs.get(name), `${duration(staleness(each))} · ${each.state ?? 'new'} · ${count(each.rows)} rows`)
    }
    for (const { from, element } of drawing.lines) element.style.strokeWidth = `${thickness(run.tables.get(from)?.rows ?? 0, most)}px`
  }
  if (large) narrow()
  else build([...run.tables.keys()])
  return { update: (what) => { if (what === 'seen') draw() }, tick: draw, close: () => { clearTimeout(later); giveUp() } }
}

function kind(each) {
  if (['held', 'stopped', 'stuck'].includes(each.state)) return 'bad'
  if (each.target) return isLate(each) ? 'bad' : lag(each) > each.target / 2 ? 'warn' : 'good'
  return ['retrying', 'no source', 'paused'].includes(each.state) ? 'warn' : 'plain'
}

const legend = () => h('p', { class: 'legend' }, [['good', 'lag below half of the target'], ['warn', 'above half of the target, or paused'], ['bad', 'later than the target, or held'], ['plain', 'no target']]
  .map(([each, text]) => h('span', {}, h('i', { class: `key box ${each}` }), text)), h('span', {}, 'A wider line: more rows in the table that it comes from.'))
