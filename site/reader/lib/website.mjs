// The folder that the book is built from: docs.json and the MDX pages it lists.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import path from 'node:path';

/** The languages that this edition has interface words for, as docs.json calls them, with their HTML name. */
export const LANGUAGES = { en: 'en', zh: 'zh-Hans' };

/** Ids of all MDX files below `folder`, as docs.json writes them: `en/chapters/01-introduction`. */
function pagesOnDisk(folder) {
  return readdirSync(folder, { recursive: true })
    .filter((name) => name.endsWith('.mdx'))
    .map((name) =>
      name
        .split(path.sep)
        .join('/')
        .replace(/\.mdx$/, ''),
    )
    .sort();
}

/** Faults of one language's entry in docs.json: language, groups and pages have the form that the layout expects. */
function faultsOfLanguage({ language, groups }) {
  if (!LANGUAGES[language]) return [`docs.json: no interface words for the language "${language}"`];
  if (!Array.isArray(groups) || !groups.length) return [`docs.json: the language "${language}" has no groups`];
  const faults = [];
  for (const { group, pages } of groups) {
    if (typeof group !== 'string' || !Array.isArray(pages))
      faults.push(`docs.json: a group of "${language}" needs "group" and "pages"`);
    for (const page of Array.isArray(pages) ? pages : []) {
      if (typeof page !== 'string')
        faults.push(`docs.json: ${JSON.stringify(page)} in "${group}" is not the name of a page`);
      else if (!page.startsWith(`${language}/`)) faults.push(`docs.json: ${page} is listed under "${language}"`);
    }
  }
  return faults;
}

/** Faults between the list of pages and the files: missing, not listed, listed twice. */
function faultsOfPages(listed, present) {
  return [
    ...listed.filter((id) => !present.includes(id)).map((id) => `docs.json: the page ${id} has no file ${id}.mdx`),
    ...listed.filter((id, i) => listed.indexOf(id) !== i).map((id) => `docs.json: the page ${id} is listed twice`),
    ...present.filter((id) => !listed.includes(id)).map((id) => `${id}.mdx: is not in docs.json`),
  ];
}

/** Reads docs.json; `{ fault }` when it cannot be used. */
function readConfig(folder) {
  const file = path.join(folder, 'docs.json');
  if (!existsSync(file)) return { fault: `${file}: no such file` };
  try {
    const config = JSON.parse(readFileSync(file, 'utf8'));
    return Array.isArray(config.navigation?.languages)
      ? { config }
      : { fault: 'docs.json: navigation.languages is missing' };
  } catch (error) {
    return { fault: `docs.json: ${error.message}` };
  }
}

/**
 * The website at `folder`: its name, its languages with their groups of pages, all page ids in reading order, and
 * what is wrong with it. Of a website with faults nothing else is to be used.
 */
export function readWebsite(folder) {
  const { config, fault } = readConfig(folder);
  if (fault) return { faults: [fault] };
  const { languages } = config.navigation;
  const faults = languages.flatMap(faultsOfLanguage);
  if (faults.length) return { faults };
  const pages = languages.flatMap(({ groups }) => groups.flatMap((group) => group.pages));
  return {
    name: config.name,
    favicon: config.favicon,
    languages,
    pages,
    faults: faultsOfPages(pages, pagesOnDisk(folder)),
  };
}
