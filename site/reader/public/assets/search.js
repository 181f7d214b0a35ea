// The search box: loads its index when it is first used, shows what search-match.js finds, and is worked by keyboard.
(() => {
  const { hits: hitsWord, noHits } = JSON.parse(document.documentElement.dataset.words);
  const ROOT = new URL('..', document.currentScript.src);
  const language = document.documentElement.lang.slice(0, 2);
  const input = document.getElementById('search');
  const list = document.getElementById('hits');
  const status = document.querySelector('.search [role=status]');
  let active = -1;

  /** Loads the index by a script element: a page that is a file may not fetch another file. */
  function loadIndex() {
    if (loadIndex.begun) return;
    loadIndex.begun = true;
    const script = document.createElement('script');
    script.src = new URL(`search/${language}.js`, ROOT);
    script.addEventListener('load', show);
    document.head.append(script);
  }

  /** Fills an element with pieces of text, those that were searched for inside `<mark>`. */
  function fill(element, parts) {
    element.append(
      ...parts.map(({ text, hit }) => {
        if (!hit) return text;
        const mark = document.createElement('mark');
        mark.textContent = text;
        return mark;
      }),
    );
    return element;
  }

  function entry({ href, pageTitle, title, snippet }, i) {
    const link = document.createElement('a');
    Object.assign(link, { href: new URL(href, ROOT), id: `hit-${i}`, role: 'option', tabIndex: -1 });
    const heading = fill(document.createElement('strong'), title);
    const text = fill(document.createElement('span'), snippet);
    const page = document.createElement('small');
    page.textContent = pageTitle;
    link.append(...(heading.textContent === pageTitle ? [heading, text] : [page, heading, text]));
    link.addEventListener('click', close);
    return link;
  }

  function close() {
    list.hidden = true;
    status.textContent = '';
    activate(-1);
    input.setAttribute('aria-expanded', 'false');
  }

  /** Makes entry `i` the one that Enter follows. */
  function activate(i) {
    list.children[active]?.setAttribute('aria-selected', 'false');
    active = i;
    const chosen = list.children[active];
    chosen?.setAttribute('aria-selected', 'true');
    chosen?.scrollIntoView({ block: 'nearest' });
    if (chosen) input.setAttribute('aria-activedescendant', chosen.id);
    else input.removeAttribute('aria-activedescendant');
  }

  function show() {
    const query = input.value.trim();
    if (!query || !window.bookIndex) return close();
    const results = bookSearch.search(window.bookIndex, query);
    list.replaceChildren(...results.map(entry));
    list.hidden = false;
    status.textContent = results.length ? `${results.length} ${hitsWord}` : `${noHits} “${query}”`;
    list.classList.toggle('empty', results.length === 0);
    input.setAttribute('aria-expanded', String(results.length > 0));
    activate(results.length ? 0 : -1);
  }

  const keys = {
    ArrowDown: () => activate(Math.min(active + 1, list.children.length - 1)),
    ArrowUp: () => activate(Math.max(active - 1, 0)),
    Enter: () => list.hidden || list.children[active]?.click(),
    Escape: () => (list.hidden ? input.blur() : close()),
  };
  input.addEventListener('keydown', (event) => {
    if (event.isComposing || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  input.addEventListener('input', show);
  input.addEventListener('focus', () => {
    loadIndex();
    show();
  });

  const writes = (element) => element.matches('input, textarea, select, [contenteditable]');
  document.addEventListener('keydown', (event) => {
    if (event.key !== '/' || event.ctrlKey || event.metaKey || event.altKey || writes(event.target)) return;
    event.preventDefault();
    input.focus();
    input.select();
  });
  document.addEventListener('pointerdown', ({ target }) => {
    if (!target.closest('.search')) close();
  });
})();
