// A Chinese page may hold English: cells that are not translated yet, titles of sources. Screen readers, hyphenation
// and the choice of fonts need to know.
import { SKIP, visit } from 'unist-util-visit';
import { languageOf } from './language.mjs';
import { proseOf } from './text.mjs';

const BLOCKS = /^(p|li|h[1-6]|td|th|dd|dt|blockquote|figcaption)$/;
const HAN = /\p{Script=Han}/u;
const WORDS = /\b[A-Za-z]{2,}/g;
const FEWEST_WORDS = 3;

/** Whether a text is English rather than a name or an abbreviation inside Chinese. */
export function isEnglish(text) {
  return !HAN.test(text) && (text.match(WORDS) ?? []).length >= FEWEST_WORDS;
}

/** Rehype plugin: `lang="en"` on the blocks of a Chinese page that are English. */
export function markEnglish() {
  return (tree, file) => {
    if (languageOf(file) === 'en') return;
    visit(tree, 'element', (node) => {
      if (!BLOCKS.test(node.tagName) || !isEnglish(proseOf(node))) return undefined;
      node.properties.lang = 'en';
      return SKIP;
    });
  };
}
