// The book as the templates see it: each page with its place, its neighbours and its other languages.
import { pages, website } from 'virtual:book';
import { LANGUAGES } from '../lib/website.mjs';

export const bookName = website.name;
export const favicon = website.favicon;
export const allPages = website.pages;

/** `Chapter 1 · What Is …?` as its number and its name; a title without a number has only a name. */
export function splitTitle(title) {
  const [number, ...name] = title.split(' · ');
  return name.length ? { number, name: name.join(' · ') } : { number: '', name: title };
}

/** A page as a link to it needs it. */
function linkTo(id) {
  const { title, sidebarTitle = title } = pages[id].frontmatter;
  return { id, href: `/${id}`, title, short: sidebarTitle, ...splitTitle(sidebarTitle) };
}

/** The same page in the other languages, as `{ language, href }`. */
function otherLanguages(id, language) {
  return website.languages
    .filter((other) => other.language !== language)
    .map((other) => ({ language: other.language, id: id.replace(`${language}/`, `${other.language}/`) }))
    .filter((other) => pages[other.id])
    .map((other) => ({ language: other.language, href: `/${other.id}` }));
}

/** Everything that the layout shows around the page `id`. */
export function placeOf(id) {
  const language = id.split('/')[0];
  const { groups } = website.languages.find((entry) => entry.language === language);
  const order = groups.flatMap((group) => group.pages);
  const at = order.indexOf(id);
  return {
    language,
    htmlLanguage: LANGUAGES[language],
    parts: groups.map(({ group, pages: ids }) => ({ title: group, pages: ids.map(linkTo) })),
    part: groups.find((group) => group.pages.includes(id)).group,
    home: `/${order[0]}`,
    book: pages[order[0]].frontmatter.title,
    previous: at > 0 ? linkTo(order[at - 1]) : undefined,
    next: at + 1 < order.length ? linkTo(order[at + 1]) : undefined,
    others: otherLanguages(id, language),
  };
}

/** The compiled MDX of a page and its frontmatter. */
export function pageOf(id) {
  return pages[id];
}

/** Where the book begins in each language. */
export function beginnings() {
  return website.languages.map(({ language, groups }) => ({ language, href: `/${groups[0].pages[0]}` }));
}
