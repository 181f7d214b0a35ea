// What the browser test asks of a page, from within it. A check returns sentences, one a fault.
window.inPage = (() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const style = (element) => getComputedStyle(element);
  const shown = (element) => element.checkVisibility({ visibilityProperty: true }) && element.getClientRects().length > 0;
  // A label for screen readers is a pixel large, and KaTeX clips boxes that it draws with.
  const unseen = (element) => element.clientWidth <= 1 || element.closest('.katex') !== null;
  const scrolls = (element) => ['auto', 'scroll'].includes(style(element).overflowX);
  const clips = (element) => ['hidden', 'clip'].includes(style(element).overflowX);

  function ancestor(element, test) {
    for (let up = element.parentElement; up && up !== document.body; up = up.parentElement) if (test(up)) return up;
    return null;
  }

  function name(element) {
    const id = element.closest('[id]')?.id;
    const words = (element.getAttribute('src') ?? element.textContent).trim().replace(/\s+/g, ' ').slice(0, 50);
    return `<${element.tagName.toLowerCase()}>${id ? ` in #${id}` : ''} "${words}"`;
  }

  // What reaches out of the window, and what is cut where nobody can scroll to it.
  function overflow() {
    const width = document.documentElement.clientWidth;
    const faults = [];
    if (document.documentElement.scrollWidth > width) {
      faults.push(`the page is ${document.documentElement.scrollWidth} px wide in a window of ${width}`);
    }
    for (const element of all('body *')) {
      if (unseen(element) || !shown(element)) continue;
      const box = element.getBoundingClientRect();
      const inside = ancestor(element, (up) => scrolls(up) || clips(up));
      if (!inside && box.right > width + 1) faults.push(`${name(element)} reaches ${Math.round(box.right)} of ${width} px`);
      if (element.closest('main') && box.left < -1 && !inside) faults.push(`${name(element)} begins left of the window`);
      if (clips(element) && element.scrollWidth > element.clientWidth + 1) faults.push(`${name(element)} is cut`);
    }
    return faults;
  }

  // Equation numbers that are out of sight, or lie over their formula even when it is scrolled to its end.
  function equationNumbers() {
    const width = document.documentElement.clientWidth;
    return all('main .katex-display .tag').filter(shown).flatMap((tag) => {
      const display = tag.closest('.katex-display');
      const { left, right } = tag.getBoundingClientRect();
      display.scrollLeft = display.scrollWidth;
      const covered = all('.base', display).some((base) => !tag.contains(base) && overlaps(base, tag));
      display.scrollLeft = 0;
      if (left < 0 || right > width) return [`${name(tag)} is out of sight`];
      return covered ? [`${name(tag)} lies over its formula`] : [];
    });
  }

  function overlaps(one, other) {
    const [a, b] = [one.getBoundingClientRect(), other.getBoundingClientRect()];
    return a.right > b.left + 2 && a.left < b.right - 2 && a.bottom > b.top + 2 && a.top < b.bottom - 2;
  }

  // KaTeX breaks a formula into boxes; those of a displayed line have to stand on one line.
  function baselines() {
    return all('main .katex-display .katex-html').filter(shown).flatMap((formula) => {
      const struts = all(':scope > .base > .strut, :scope > .tag > .base > .strut, :scope > .tag > .strut', formula);
      const lines = struts.map((strut) => strut.getBoundingClientRect().bottom + (parseFloat(style(strut).verticalAlign) || 0));
      const apart = Math.max(...lines) - Math.min(...lines);
      return apart > 1.5 ? [`the parts of ${name(formula)} stand ${apart.toFixed(1)} px apart`] : [];
    });
  }

  async function images() {
    const faults = [];
    for (const image of all('img')) {
      image.loading = 'eager';
      await image.decode().catch(() => faults.push(`${name(image)} does not load`));
      if (!image.alt) faults.push(`${name(image)} has no alt text`);
    }
    return faults;
  }

  // What holds more than it shows: on paper nobody scrolls.
  function scrollers() {
    const wide = all('main *').filter((element) => !unseen(element) && shown(element) && scrolls(element) && element.scrollWidth > element.clientWidth + 1);
    return wide.map((element) => `${name(element)} is cut on paper`);
  }

  // Where the character at `offset` of a text stands.
  function characterBox(text, offset) {
    const range = document.createRange();
    range.setStart(text, offset);
    range.setEnd(text, offset + 1);
    return range.getBoundingClientRect();
  }

  // Formulas and names in code that a line break parts from the bracket before or the punctuation behind them.
  function punctuation() {
    return all('main :is(.katex, :not(pre) > code)').filter(shown).flatMap((element) => {
      const [before, after] = [element.previousSibling, element.nextSibling];
      const [first, last] = [element.getClientRects()[0], [...element.getClientRects()].at(-1)];
      const behind = after?.nodeType === Node.TEXT_NODE && /^[，。；：、？！）」”,.;:?!)\]]/.test(after.data);
      const opening = before?.nodeType === Node.TEXT_NODE && /[（「“(\[]$/.test(before.data);
      return [
        ...(behind && characterBox(after, 0).top > last.bottom - 2 ? [`a line begins with the ${after.data[0]} behind ${name(element)}`] : []),
        ...(opening && characterBox(before, before.length - 1).bottom < first.top + 2 ? [`a line ends with the ${before.data.at(-1)} before ${name(element)}`] : []),
      ];
    });
  }

  // Of a figure's two drawings the one for `theme` is shown and the other is not.
  function figures(theme) {
    return all('main img').filter((image) => /-(light|dark)\.svg$/.test(image.src)).flatMap((image) => {
      const right = image.src.endsWith(`-${theme}.svg`);
      const folded = image.closest('details:not([open])');
      if (folded || shown(image) === right) return [];
      return [`${name(image)} is ${right ? 'hidden' : 'shown'} in ${theme} mode`];
    });
  }

  // Formulas are set in KaTeX's own fonts: each family in use is loaded, and its letters are not the fallback's.
  async function fonts() {
    await document.fonts.ready;
    const letters = all('main .katex-html *').filter((element) => element.childElementCount === 0 && element.textContent.trim() && shown(element));
    const used = new Set(letters.map((element) => style(element).fontFamily.split(',')[0].replaceAll('"', '').trim()));
    const faces = [...document.fonts];
    const loaded = new Set(faces.filter((face) => face.status === 'loaded').map((face) => face.family.replaceAll('"', '')));
    const width = (family) => ((pen.font = `100px ${family}`), pen.measureText('mathematics RL 0123').width);
    return [...used].flatMap((family) => {
      if (!family.startsWith('KaTeX')) return [`formulas are set in ${family}`];
      if (!loaded.has(family)) return [`${family} is used and not loaded`];
      const same = ['serif', 'monospace'].every((other) => width(`${family}, ${other}`) === width(other));
      return same ? [`${family} is drawn in the fallback font`] : [];
    }).concat(faces.filter((face) => face.status === 'error').map((face) => `${face.family} failed to load`));
  }

  // The formulas have the colour of the text around them, so that what axe finds of the text holds for them.
  function formulaColours() {
    const odd = all('main .katex').filter((formula) => style(formula).color !== style(formula.parentElement).color);
    return odd.map((formula) => `${name(formula)} has a colour of its own`);
  }

  const bright = (channel) => (channel <= 0.04045 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4);
  const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });

  // Red, green, blue and how opaque, 0 to 1, of a colour in any notation of CSS.
  function channels(colour) {
    pen.clearRect(0, 0, 1, 1);
    pen.fillStyle = colour;
    pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data].map((value) => value / 255);
  }

  function luminance(colour) {
    const [red, green, blue] = channels(colour).map(bright);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  }

  function groundOf(element) {
    for (let up = element; up; up = up.parentElement) if (channels(style(up).backgroundColor)[3] === 1) return style(up).backgroundColor;
    return 'white';
  }

  // Kinds of tokens in code that stand out too little from their ground: WCAG's 4.5 to 1.
  function codeContrast() {
    const kinds = new Map();
    for (const block of all('main pre')) {
      const ground = groundOf(block);
      for (const token of [block, ...all('[class]', block)]) kinds.set(`${token.className} on ${ground}`, [token, ground]);
    }
    return [...kinds].flatMap(([kind, [token, ground]]) => {
      const [ink, paper] = [luminance(style(token).color), luminance(ground)];
      const ratio = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
      return ratio >= 4.5 ? [] : [`${name(token)}: ${kind} is ${ratio.toFixed(2)} to 1`];
    });
  }

  function doubleIds() {
    const seen = new Set();
    return all('[id]').filter((element) => seen.size === seen.add(element.id).size).map((element) => `id ${element.id} stands twice`);
  }

  // How bright the paper is, 0 to 1.
  function brightness() {
    return luminance(groundOf(document.body));
  }

  // axe-core's findings. Tokens of code and the inside of formulas, nine tenths of a page, have their checks of colour
  // above; the code stays as text, the formulas as MathML.
  async function accessibility(only) {
    for (const code of all('pre code')) code.textContent = code.textContent;
    for (const drawn of all('.katex-html')) drawn.remove();
    const found = await axe.run({ runOnly: only, resultTypes: ['violations'], preload: false });
    return found.violations.flatMap((rule) => rule.nodes.map((node) => `${rule.id}: ${node.target.join(' ')}: ${node.failureSummary?.split('\n')[1]?.trim() ?? ''}`));
  }

  function facts() {
    const address = (selector) => document.querySelector(selector)?.href ?? null;
    return {
      title: document.title,
      language: document.documentElement.lang,
      ids: all('main [id]').map((element) => element.id),
      links: all('a[href]').map((element) => element.href),
      chapters: all('#chapters a').map((element) => element.href),
      current: all('#chapters a[aria-current="page"]').map((element) => element.href),
      contents: all('#contents a').map((element) => element.hash.slice(1)),
      headings: all('main h2[id], main h3[id]').filter((element) => !element.closest('details')).map((element) => element.id),
      previous: address('a[rel~="prev"]'),
      next: address('a[rel~="next"]'),
    };
  }

  // What stands from the element with this id to the next heading.
  function section(id) {
    const start = document.getElementById(id);
    const after = all('main :is(h2, h3)[id]').find((heading) => start.compareDocumentPosition(heading) === Node.DOCUMENT_POSITION_FOLLOWING);
    const range = document.createRange();
    range.setStartBefore(start);
    range.setEndAfter(document.querySelector('main').lastElementChild);
    if (after) range.setEndBefore(after);
    return range.toString();
  }

  // Where each element stands, counted once: scripts add some later.
  let counted = null;
  const places = () => (counted ??= new Map(all('body *').map((element, place) => [element, place])));

  // The middle of the part of a box that is in the window.
  const inside = (start, end, size) => (Math.max(start, 0) + Math.min(end, size)) / 2;

  // The element that has the focus, and what a reader who does not use a mouse could not see of it.
  function focus() {
    const element = document.activeElement;
    if (!element || element === document.body) return null;
    const look = style(element);
    const marked = (look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) > 0) || look.boxShadow !== 'none';
    const [box] = [...element.getClientRects()].filter(({ width, height }) => width && height);
    const at = box && document.elementFromPoint(inside(box.left, box.right, innerWidth), inside(box.top, box.bottom, innerHeight));
    const seen = at && (element.contains(at) || at.contains(element) && at !== document.body && at !== document.documentElement);
    const faults = [...(marked ? [] : ['has no mark of its focus']), ...(seen ? [] : ['is out of sight or covered'])];
    return { name: name(element), faults: faults.map((fault) => `${name(element)} ${fault}`), place: places().get(element) };
  }

  // The places of what the Tab key has to reach.
  function tabbable() {
    const targets = all('a[href], button, input, summary').filter((element) => shown(element) && element.tabIndex >= 0 && !element.disabled);
    return targets.map((element) => places().get(element));
  }

  // Clicks the copy button of every cell; what each gave, by the id of the cell.
  async function copies() {
    const found = {};
    let copied = null;
    navigator.clipboard.writeText = async (text) => void (copied = text);
    for (const button of all(':is([id^="cell-"], [id^="sol-"]) figure.code button')) {
      button.click();
      await new Promise((done) => setTimeout(done));
      found[button.closest('[id^="cell-"], [id^="sol-"]').id] = copied;
    }
    return found;
  }

  // How bright the paper was in the first frame that was painted.
  let firstPaper = null;
  requestAnimationFrame(() => (firstPaper = brightness()));

  const checks = { overflow, equationNumbers, punctuation, baselines, images, fonts, formulaColours, doubleIds };

  // What these checks find, by their names.
  async function faults(kinds) {
    return Object.fromEntries(await Promise.all(kinds.map(async (kind) => [kind, await checks[kind]()])));
  }

  return {
    ...checks,
    faults,
    section,
    tabbable,
    copies,
    focus,
    firstPaper: () => firstPaper,
    scrollers,
    figures,
    codeContrast,
    brightness,
    accessibility,
    facts,
    shown,
  };
})();
