// Copy buttons on code, not on what it printed; and a heading's link copies its address.
(() => {
  const { copy, copied } = JSON.parse(document.documentElement.dataset.words);
  const SHOWN_FOR = 1600;

  /** Copies by a selection, where the browser keeps the clipboard from pages that are files. */
  function copyBySelection(text) {
    const field = document.createElement('textarea');
    field.value = text;
    field.style.cssText = 'position:fixed;opacity:0';
    document.body.append(field);
    field.select();
    document.execCommand('copy');
    field.remove();
  }

  async function copyText(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      copyBySelection(text);
    }
  }

  function addButton(figure) {
    const button = document.createElement('button');
    button.type = 'button';
    button.className = 'copy';
    button.textContent = copy;
    button.addEventListener('click', async () => {
      await copyText(figure.querySelector('pre').textContent);
      button.textContent = copied;
      setTimeout(() => (button.textContent = copy), SHOWN_FOR);
    });
    figure.append(button);
  }

  for (const figure of document.querySelectorAll('figure.code')) addButton(figure);

  document.addEventListener('click', async ({ target }) => {
    const anchor = target.closest?.('a.anchor');
    if (!anchor) return;
    await copyText(anchor.href);
    anchor.dataset.copied = copied;
    setTimeout(() => delete anchor.dataset.copied, SHOWN_FOR);
  });
})();
