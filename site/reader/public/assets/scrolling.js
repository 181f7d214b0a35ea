// Code, tables, figures and formulas that are wider than the page scroll by themselves. Those that do can be reached by
// keyboard, and say by `data-more` that something lies beyond their right edge.
(() => {
  const { scrolls } = JSON.parse(document.documentElement.dataset.words);
  const boxes = [...document.querySelectorAll('.prose pre, .prose .table, .frame, .katex-display')];

  function markEdge(box) {
    box.toggleAttribute('data-more', box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
  }

  function markScrolling(box, wide) {
    for (const [name, value] of [
      ['tabindex', '0'],
      ['role', 'group'],
      ['aria-label', scrolls],
    ]) {
      if (wide) box.setAttribute(name, value);
      else box.removeAttribute(name);
    }
  }

  function update() {
    // All sizes are read before anything is written: the page is laid out once.
    const states = boxes.map((box) => [box, box.scrollWidth > box.clientWidth + 1]);
    for (const [box, wide] of states) if (wide !== box.hasAttribute('tabindex')) markScrolling(box, wide);
    boxes.forEach(markEdge);
  }

  for (const box of boxes) box.addEventListener('scroll', () => markEdge(box), { passive: true });
  new ResizeObserver(update).observe(document.querySelector('.prose'));
  document.addEventListener('toggle', update, true);
  document.fonts.ready.then(update);
})();
