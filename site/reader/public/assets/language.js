// Changing the language keeps the section: ids are the same in all languages. The choice is kept for the first page.
(() => {
  for (const link of document.querySelectorAll('.languages a')) {
    link.addEventListener('click', () => {
      const { section } = document.documentElement.dataset;
      if (section) link.hash = section;
      try {
        localStorage.setItem('book-language', link.dataset.language);
      } catch {
        // No storage for files on disk: the first page asks the browser again.
      }
    });
  }
})();
