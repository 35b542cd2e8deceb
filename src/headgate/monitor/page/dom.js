// Elements are made of text only, never of markup: whatever a table is called, it is shown as it is.

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag)
  return filled(element, attributes, children)
}

export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children)
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value)
    else if (name === 'class') element.setAttribute('class', value)
    else if (name === 'style') Object.assign(element.style, value)
    else if (typeof value === 'boolean' && name in element) element[name] = value
    else element.setAttribute(name, value === true ? '' : String(value))
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false))
  return element
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter(Boolean))
}

// Changes a text only if it is another one, so that what is selected or focused stays.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text
}

// Replaces what is in an element only if `key` is another one than the last time.
export function replaceIf(element, key, make) {
  if (element.dataset.key === key) return
  element.dataset.key = key
  replace(element, make())
}

export const tableLink = (name) => h('a', { href: `#/table/${encodeURIComponent(name)}` }, name)

// A table of rows of cells; a cell is a text, an element, or [text, class].
export function grid(headings, rows, caption) {
  const cell = (each) => (Array.isArray(each) ? h('td', { class: each[1] }, each[0]) : h('td', {}, each ?? ''))
  return h('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': caption }, h('table', {},
    h('thead', {}, h('tr', {}, headings.map((each) => (Array.isArray(each) ? h('th', { title: each[1], scope: 'col' }, each[0]) : h('th', { scope: 'col' }, each))))),
    h('tbody', {}, rows.map((row) => h('tr', {}, row.map(cell))))))
}

// The value of a CSS variable, for what is drawn on a canvas.
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()
}
