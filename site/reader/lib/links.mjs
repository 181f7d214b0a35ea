// Pages link to each other from the root of the site, `/en/chapters/01-introduction#sec-1-1`. On disk there is no
// root, so every link becomes relative; and each is checked while we are at it.
import path from 'node:path';
import { changeAttributes, escape, idsOf } from './html.mjs';

const ELSEWHERE = /^(https?:|mailto:)/;
const SCHEME = /^[a-z][a-z+.-]*:|^\/\//i;

/** The file that a path without fragment means, or undefined: itself, or with .html, or the index of a folder. */
export function fileOf(target, files) {
  return [target, `${target}.html`, path.posix.join(target, 'index.html')].find((name) => files.has(name));
}

/** What to write in `page` instead of the link `url`; `{ fault }` when it leads nowhere. `ids` has the ids per page. */
export function resolveLink(url, page, files, ids) {
  if (ELSEWHERE.test(url)) return { url };
  if (SCHEME.test(url)) return { fault: `link of a kind that the book has no use for: ${url}` };
  const [target, fragment] = url.split('#');
  const here = path.posix.dirname(page);
  const wanted =
    target === ''
      ? page
      : path.posix.normalize(target.startsWith('/') ? target.slice(1) : path.posix.join(here, target));
  const file = fileOf(decodeURI(wanted), files);
  if (!file) return { fault: `dead link: ${url}` };
  if (fragment && !ids.get(file)?.has(decodeURIComponent(fragment))) return { fault: `dead anchor: ${url}` };
  const relative = target === '' ? '' : encodeURI(path.posix.relative(here, file));
  return { url: fragment === undefined ? relative : `${relative}#${fragment}` };
}

/** Faults of one page's ids: an id that is there more than once. */
export function faultsOfIds(html) {
  const ids = idsOf(html);
  const repeated = new Set(ids.filter((id, i) => ids.indexOf(id) !== i));
  return [...repeated].map((id) => `the id "${id}" is used more than once`);
}

/**
 * Makes the links of all pages relative. `pages` maps names such as `en/index.html` to HTML, `files` are the names of
 * everything on the site. Returns the pages as changed, and the faults as `{ page, fault }`.
 */
export function relinkPages(pages, files) {
  const ids = new Map([...pages].map(([name, html]) => [name, new Set(idsOf(html))]));
  const faults = [];
  const relinked = [...pages].map(([page, html]) => {
    faults.push(...faultsOfIds(html).map((fault) => ({ page, fault })));
    const change = (value, name, tag) => {
      const { url, fault } = resolveLink(value, page, files, ids);
      if (fault) faults.push({ page, fault: tag === 'img' ? fault.replace('dead link', 'missing image') : fault });
      return escape(url ?? value);
    };
    return [page, changeAttributes(html, ['href', 'src'], change)];
  });
  return { pages: new Map(relinked), faults };
}
