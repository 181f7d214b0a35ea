// A link to something inside a folded part opens that part; before printing everything is opened.
(() => {
  function openAround(id) {
    const target = id && document.getElementById(decodeURIComponent(id));
    if (!target) return;
    let opened = false;
    for (
      let node = target.closest('details:not([open])');
      node;
      node = node.parentElement.closest('details:not([open])')
    ) {
      node.open = true;
      opened = true;
    }
    if (opened) target.scrollIntoView();
  }

  const openForAddress = () => openAround(location.hash.slice(1));
  addEventListener('hashchange', openForAddress);
  addEventListener('load', openForAddress);
  // Following a link to where the address already points changes nothing that the browser would report.
  document.addEventListener('click', ({ target }) => {
    const link = target.closest?.('a[href^="#"]');
    if (link && link.hash === location.hash) openForAddress();
  });

  let openedForPrint = [];
  addEventListener('beforeprint', () => {
    openedForPrint = [...document.querySelectorAll('details:not([open])')];
    for (const details of openedForPrint) details.open = true;
  });
  addEventListener('afterprint', () => {
    for (const details of openedForPrint) details.open = false;
  });
})();
