// Makes what is wider than a line fit it, and returns what still does not. Runs in the document that is printed.
(() => {
  const main = document.querySelector("main");
  const line = main.getBoundingClientRect();
  const faults = [];
  const name = (element) => {
    const owner = element.closest("[id]");
    return `${owner ? owner.id : "?"}: <${element.tagName.toLowerCase()}> ${element.textContent.trim().slice(0, 60)}`;
  };

  // A formula and its number share the line: first the formula moves aside, then it gets smaller.
  for (const display of document.querySelectorAll(".katex-display")) {
    const bases = [...display.querySelectorAll(".katex-html > .base")].map((base) => base.getBoundingClientRect());
    const tag = display.querySelector(".tag");
    if (!bases.length) continue;
    const wide = Math.max(...bases.map((b) => b.right)) - Math.min(...bases.map((b) => b.left));
    const room = display.clientWidth;
    const beside = tag ? tag.getBoundingClientRect().width + 16 : 0;
    if (wide + 2 * beside <= room) continue;
    display.querySelector(".katex-html").style.paddingRight = `${beside}px`;
    if (wide + beside > room) {
      const scale = (room - beside) / wide;
      if (scale < 0.6) faults.push(`${name(display)}: the formula is ${Math.round(wide)} pixels wide, ${room} fit`);
      display.style.fontSize = `${Math.floor(98 * scale)}%`;
    }
  }

  // An output keeps its columns as long as it can be read; one that is wider still is wrapped, as code is.
  for (const pre of document.querySelectorAll(".output pre")) {
    pre.classList.add("measured");
    const style = getComputedStyle(pre);
    const room = pre.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    const wide = Math.max(0, ...[...pre.querySelectorAll(".line")].map((one) => one.scrollWidth));
    pre.classList.remove("measured");
    if (wide > room && room / wide >= 0.74) pre.style.fontSize = `${parseFloat(style.fontSize) * (room / wide) * 0.985}px`;
  }

  for (const table of document.querySelectorAll("table")) {
    for (const size of ["tight", "tighter"]) {
      if (table.getBoundingClientRect().right <= table.parentElement.getBoundingClientRect().right + 1) break;
      table.classList.add(size);
    }
  }

  // What is left over the edge, but for the insides of formulas, whose boxes overlap by design.
  for (const element of main.querySelectorAll(":scope > :not(.cover) *")) {
    if (element.closest(".katex .katex-html *") || element.closest(".continued")) continue;
    const box = element.getBoundingClientRect();
    if (box.width && (box.right > line.right + 1.5 || box.left < line.left - 1.5)) {
      faults.push(`${name(element)}: reaches ${Math.round(Math.max(box.right - line.right, line.left - box.left))} pixels beyond the line`);
    }
  }
  return faults.slice(0, 20);
})();
