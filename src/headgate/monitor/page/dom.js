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

// The value of a CSS variable, for what is drawn on a canvas.
export function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()
}
