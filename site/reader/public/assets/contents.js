// Marks in the list of contents which section is being read, and notes it for the change of language.
(() => {
  const list = document.getElementById('contents');
  const links = [...list.querySelectorAll('a[href^="#"]')];
  const headings = links.map((link) => document.getElementById(decodeURIComponent(link.hash.slice(1))));
  const READING_LINE = 120;

  /** The index of the last heading above the line at which one reads; -1 above the first. */
  function reached() {
    const end = innerHeight + scrollY >= document.documentElement.scrollHeight - 2;
    const line = end && scrollY > 0 ? innerHeight : READING_LINE;
    return headings.findLastIndex((heading) => heading.getBoundingClientRect().top <= line);
  }

  /** Scrolls the list, never the page, so far that the marked entry is seen. */
  function keepInView(link) {
    const [inner, outer] = [link.getBoundingClientRect(), list.getBoundingClientRect()];
    if (inner.top < outer.top + 40) list.scrollTop -= outer.top + 40 - inner.top;
    else if (inner.bottom > outer.bottom - 40) list.scrollTop += inner.bottom - outer.bottom + 40;
  }

  let marked = -2;
  function mark() {
    const now = reached();
    if (now === marked) return;
    links[marked]?.removeAttribute('aria-current');
    marked = now;
    document.documentElement.dataset.section = links[now] ? links[now].hash.slice(1) : '';
    if (!links[now]) return;
    links[now].setAttribute('aria-current', 'location');
    keepInView(links[now]);
  }

  let waiting = false;
  addEventListener(
    'scroll',
    () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        mark();
      });
    },
    { passive: true },
  );
  addEventListener('load', mark);
  // language.js asks on a click; the last scroll may not have been looked at yet.
  document.addEventListener('click', mark, true);
  mark();
  // On a narrow screen the list lies over the text; a choice in it closes it.
  list.addEventListener('click', ({ target }) => {
    if (target.closest('a') && list.matches(':popover-open')) list.hidePopover();
  });
})();
