// What the search box looks through: one entry a section, with the words a reader would search for.
import { attributesOf, decode, tokens } from './html.mjs';

const HEADING = /^h[1-6]$/;
const BLOCK = /^(p|li|td|th|div|pre|figure|figcaption|summary|tr|h[1-6]|details|aside|section|br)$/;
const EXERCISE = /^ex-/;
// Of a formula only what MathML shows is read: KaTeX's own layout and the LaTeX would say the same twice more.
const SKIPPED_CLASSES = /\b(katex-html|anchor|skip-search)\b/;
const SKIPPED_ELEMENTS = new Set(['annotation', 'script', 'style', 'svg', 'button']);

const isSkipped = ({ name, attributes }) =>
  SKIPPED_ELEMENTS.has(name) || SKIPPED_CLASSES.test(attributesOf(attributes).class ?? '');

/** Collects text into sections while the tokens of a page go by. */
class Collector {
  constructor(title) {
    this.sections = [{ anchor: '', title, text: '' }];
    this.open = [];
    this.skipping = 0;
  }

  /** Begins a section; its title is the next heading's or, for an exercise, the next bold text. */
  begin(anchor, until) {
    this.sections.push({ anchor, title: '', text: '' });
    this.titleUntil = until;
  }

  enter(token) {
    const skipped = this.skipping > 0 || isSkipped(token);
    if (BLOCK.test(token.name)) this.write(' ');
    if (token.empty) return;
    this.open.push({ name: token.name, skipped });
    if (skipped) this.skipping += 1;
    const { id } = attributesOf(token.attributes);
    if (!skipped && id && HEADING.test(token.name)) this.begin(id, token.name);
    else if (!skipped && EXERCISE.test(id)) this.begin(id, 'strong');
  }

  leave(name) {
    const { skipped } = this.open.pop() ?? {};
    if (skipped) this.skipping -= 1;
    if (BLOCK.test(name)) this.write(' ');
    if (name === this.titleUntil) this.titleUntil = undefined;
  }

  write(text) {
    if (this.skipping) return;
    const section = this.sections.at(-1);
    if (this.titleUntil && text.trim()) section.title += text;
    else section.text += text;
  }
}

const tidy = (text) => decode(text).replace(/\s+/g, ' ').trim();

/** The title of a page, which its `<article>` names. */
export function titleOf(html) {
  return decode(/<article[^>]* data-title="([^"]*)"/.exec(html)?.[1] ?? '');
}

/** The part of a page that is searched: what its `<article>` holds. */
function articleOf(html) {
  return /<article(?:"[^"]*"|[^">])*>([\s\S]*)<\/article>/.exec(html)?.[1] ?? '';
}

/** The sections of a page as `{ anchor, title, text }`; the first is what stands before the first heading. */
export function sectionsOf(html, title) {
  const collector = new Collector(title);
  for (const token of tokens(articleOf(html))) {
    if (token.type === 'open') collector.enter(token);
    else if (token.type === 'close') collector.leave(token.name);
    else collector.write(token.text);
  }
  return collector.sections.map((section) => ({ ...section, title: tidy(section.title), text: tidy(section.text) }));
}

/** The script that holds one language's index: pages as [url, title], sections as [page, anchor, title, text]. */
export function indexScript(pages) {
  const sections = pages.flatMap(({ html, title }, page) =>
    sectionsOf(html, title).map((section) => [page, section.anchor, section.title, section.text]),
  );
  const index = { pages: pages.map(({ url, title }) => [url, title]), sections };
  return `window.bookIndex = ${JSON.stringify(index)};\n`;
}
