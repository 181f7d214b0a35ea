// What the search finds: pure functions over the index that lib/search-index.mjs writes. Used by search.js and by the
// tests, hence a global and not a module: a page that is a file may not load modules.
(() => {
  const HAN = /\p{Script=Han}/u;
  const RUNS = /\p{Script=Han}+|[^\p{Script=Han}\s]+/gu;
  const FULL_WIDTH = /[\uff01-\uff5e]/g;
  const WORD = /[\p{L}\p{N}_]/u;
  const TEXT_LIMIT = 99;
  const [BEFORE, AFTER] = [40, 110];

  /** The text in lower case and with narrow forms, each character at its old place. */
  function fold(text) {
    const lower = text.toLowerCase();
    return (lower.length === text.length ? lower : text)
      .replace(FULL_WIDTH, (wide) => String.fromCharCode(wide.charCodeAt(0) - 0xfee0).toLowerCase())
      .replace(/\u2212/g, '-');
  }

  /** The words of a query. Chinese has no spaces: each run of it is one word, apart from Latin letters beside it. */
  function wordsOf(query) {
    return [...new Set(fold(query).match(RUNS) ?? [])];
  }

  /** Pairs of neighbouring characters, by which longer Chinese words are found when something stands in between. */
  function pairsOf(word) {
    return HAN.test(word) && word.length > 2 ? [...word].slice(1).map((second, i) => [...word][i] + second) : [];
  }

  /** Where a word stands in a folded text: all places of it, or of its pairs when all of them are there. */
  function placesOf(word, folded) {
    const places = [];
    for (let at = folded.indexOf(word); at >= 0; at = folded.indexOf(word, at + word.length))
      places.push([at, at + word.length]);
    const pairs = places.length ? [] : pairsOf(word);
    if (!pairs.length || !pairs.every((pair) => folded.includes(pair))) return places;
    return pairs.flatMap((pair) => placesOf(pair, folded));
  }

  const beginsWord = (folded, [at]) => at === 0 || !WORD.test(folded[at - 1]) || HAN.test(folded[at]);

  /** Up to 99: the words as they were typed, whole beginnings of words, and how often they are there. */
  function scoreOfText(words, phrase, folded) {
    let score = folded.includes(phrase) ? 50 : 0;
    for (const word of words) {
      const places = placesOf(word, folded);
      if (places.some((place) => beginsWord(folded, place))) score += 10;
      score += Math.min(places.length, 5);
    }
    return Math.min(score, TEXT_LIMIT);
  }

  const isWord = (folded, [at, end]) =>
    beginsWord(folded, [at]) && (HAN.test(folded[at]) || !WORD.test(folded[end] ?? ' '));

  /** 100 for each word in the title, more when it is not part of a longer one, when all are there, or in that order. */
  function scoreOfTitle(words, phrase, folded) {
    const found = words.filter((word) => placesOf(word, folded).length);
    const alone = found.filter((word) => placesOf(word, folded).some((place) => isWord(folded, place)));
    const whole = words.length === found.length ? 500 : 0;
    return (
      100 * found.length +
      30 * alone.length +
      whole +
      (folded.includes(phrase) ? 200 : 0) +
      (folded === phrase ? 200 : 0)
    );
  }

  /** How well a section answers; 0 unless each word is in it or in its page's title, and one of them in itself. */
  function scoreOf(words, phrase, section, pageTitle) {
    const own = fold(`${section.title}\n${section.text}`);
    const inOwn = words.filter((word) => placesOf(word, own).length);
    const inPage = words.filter((word) => placesOf(word, fold(pageTitle)).length);
    if (!inOwn.length || words.some((word) => !inOwn.includes(word) && !inPage.includes(word))) return 0;
    const start = section.anchor === '' ? 1 : 0;
    return scoreOfTitle(words, phrase, fold(section.title)) + scoreOfText(words, phrase, fold(section.text)) + start;
  }

  /** The text in pieces `{ text, hit }`, so that what was searched for can be marked. */
  function pieces(text, words) {
    const places = words.flatMap((word) => placesOf(word, fold(text))).sort((a, b) => a[0] - b[0]);
    const parts = [];
    let end = 0;
    for (const [from, to] of places) {
      if (to <= end) continue;
      if (from > end) parts.push({ text: text.slice(end, from), hit: false });
      parts.push({ text: text.slice(Math.max(from, end), to), hit: true });
      end = to;
    }
    if (end < text.length) parts.push({ text: text.slice(end), hit: false });
    return parts;
  }

  /** A position moved to the next space, at most 15 characters on, so that no Latin word is cut. */
  function atSpace(text, at) {
    const space = text.slice(at, at + 15).indexOf(' ');
    return space < 0 || HAN.test(text[at] ?? '') ? at : at + space;
  }

  /** The piece of a text around the first hit, with the hits marked. */
  function snippet(text, words) {
    const first = Math.min(...words.flatMap((word) => placesOf(word, fold(text))).map(([at]) => at));
    const hit = Number.isFinite(first) ? first : 0;
    const from = hit > BEFORE ? Math.min(hit, atSpace(text, hit - BEFORE)) : 0;
    const to = atSpace(text, Math.min(text.length, hit + AFTER));
    const parts = pieces(text.slice(from, to).trim(), words);
    if (from > 0) parts.unshift({ text: '… ', hit: false });
    if (to < text.length) parts.push({ text: ' …', hit: false });
    return parts;
  }

  /** What stands in the book comes before what is said about it: the ledger of sources has each method as a title. */
  const weightOf = (url) => (/(^|\/)reference\//.test(url) ? 0.25 : 1);

  /** The best answers to a query, best first, in the order of the book where they are equal. */
  function search(index, query, limit = 20) {
    const words = wordsOf(query);
    if (!words.length) return [];
    const phrase = fold(query.trim()).replace(/\s+/g, ' ');
    const found = index.sections.map(([page, anchor, title, text]) => {
      const [url, pageTitle] = index.pages[page];
      const score = weightOf(url) * scoreOf(words, phrase, { anchor, title, text }, pageTitle);
      return { url, anchor, title, text, pageTitle, score };
    });
    const best = found.filter(({ score }) => score > 0).sort((a, b) => b.score - a.score);
    return best.slice(0, limit).map((result) => ({
      href: result.anchor ? `${result.url}#${result.anchor}` : result.url,
      pageTitle: result.pageTitle,
      title: pieces(result.title, words),
      snippet: snippet(result.text, words),
    }));
  }

  globalThis.bookSearch = { search, wordsOf, pieces, snippet };
})();
