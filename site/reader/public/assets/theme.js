// Light or dark. Runs before the page is painted, so that a dark page never flashes light. The system decides until
// the reader presses the button; a choice that is what the system says anyway is not kept.
(() => {
  const KEY = 'book-theme';
  const root = document.documentElement;
  const system = matchMedia('(prefers-color-scheme: dark)');
  let chosen = null;
  try {
    chosen = localStorage.getItem(KEY);
  } catch {
    // A browser may refuse storage to files on disk. The choice then holds for this page.
  }

  const current = () => chosen ?? (system.matches ? 'dark' : 'light');

  function show() {
    root.dataset.theme = current();
    document.querySelector('.theme')?.setAttribute('aria-pressed', String(current() === 'dark'));
  }

  function toggle() {
    const wanted = current() === 'dark' ? 'light' : 'dark';
    chosen = wanted === (system.matches ? 'dark' : 'light') ? null : wanted;
    try {
      if (chosen) localStorage.setItem(KEY, chosen);
      else localStorage.removeItem(KEY);
    } catch {
      // As above.
    }
    show();
  }

  show();
  system.addEventListener('change', show);
  addEventListener('storage', ({ key, newValue }) => {
    if (key !== KEY) return;
    chosen = newValue;
    show();
  });
  addEventListener('DOMContentLoaded', () => {
    const button = document.querySelector('.theme');
    if (!button) return;
    button.hidden = false;
    button.addEventListener('click', toggle);
    show();
  });
})();
