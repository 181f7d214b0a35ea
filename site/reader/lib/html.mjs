// Reading and changing finished HTML. Our own pages only: attributes are in double quotes, text has no bare `<`.

const TOKEN = /<!--[\s\S]*?-->|<(\/?)([a-zA-Z][\w-]*)((?:"[^"]*"|[^">])*)>|[^<]+/g;
const ATTRIBUTE = /([^\s=/]+)="([^"]*)"/g;
const VOID = new Set([
  'area',
  'base',
  'br',
  'col',
  'embed',
  'hr',
  'img',
  'input',
  'link',
  'meta',
  'source',
  'track',
  'wbr',
]);
const ENTITY = /&(?:#x([\da-f]+)|#(\d+)|(amp|lt|gt|quot|apos|nbsp));/gi;
const NAMED = { amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: ' ' };

/** The characters that a piece of HTML text stands for. */
export function decode(text) {
  return text.replace(ENTITY, (_, hex, decimal, name) =>
    name ? NAMED[name.toLowerCase()] : String.fromCodePoint(hex ? parseInt(hex, 16) : Number(decimal)),
  );
}

/** Text as HTML writes it, in an element or in an attribute. */
export function escape(text) {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}

/** The attributes of a tag, with their values decoded. */
export function attributesOf(source) {
  return Object.fromEntries([...source.matchAll(ATTRIBUTE)].map(([, name, value]) => [name, decode(value)]));
}

/** Yields `{ type: 'open' | 'close' | 'text', … }` for everything in a page, in order. */
export function* tokens(html) {
  for (const [whole, slash, name, attributes] of html.matchAll(TOKEN)) {
    if (whole.startsWith('<!--')) continue;
    if (!name) yield { type: 'text', text: whole };
    else if (slash) yield { type: 'close', name };
    else yield { type: 'open', name, attributes, empty: VOID.has(name) || attributes.endsWith('/') };
  }
}

/** The page with the value of every attribute called one of `names` changed by `change(value, name, tag)`. */
export function changeAttributes(html, names, change) {
  const wanted = new RegExp(`(\\s)(${names.join('|')})="([^"]*)"`, 'g');
  return html.replace(TOKEN, (whole, slash, tag, attributes) => {
    if (!tag || slash || !attributes.includes('="')) return whole;
    return whole.replace(wanted, (_, space, name, value) => `${space}${name}="${change(decode(value), name, tag)}"`);
  });
}

/** All ids of a page, in order, repeated ones too. */
export function idsOf(html) {
  const ids = [];
  for (const { type, attributes } of tokens(html)) {
    const id = type === 'open' && attributes.includes('id=') ? attributesOf(attributes).id : undefined;
    if (id !== undefined) ids.push(id);
  }
  return ids;
}
