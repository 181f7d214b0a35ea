// The first page: on to the language read last, else to the first of the browser's languages that the book has.
(() => {
  const links = [...document.querySelectorAll('a[data-language]')];
  let last = null;
  try {
    last = localStorage.getItem('book-language');
  } catch {
    // No storage for files on disk: the browser's languages decide.
  }
  const wanted = [last, ...navigator.languages.map((tag) => tag.slice(0, 2))];
  const found = wanted.map((language) => links.find((link) => link.dataset.language === language)).find(Boolean);
  location.replace((found ?? links[0]).href);
})();
