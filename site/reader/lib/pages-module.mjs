// Gives the templates the book: `import { website, pages } from 'virtual:book'`.
import path from 'node:path';
import { readWebsite } from './website.mjs';

const NAME = 'virtual:book';

/** A Vite plugin with one module: the website's structure, and each page's compiled MDX by its id. */
export function pagesModule(folder) {
  return {
    name: 'book-pages',
    resolveId: (id) => (id === NAME ? '\0' + NAME : undefined),
    load(id) {
      if (id !== '\0' + NAME) return undefined;
      const website = readWebsite(folder);
      const imports = website.pages.map(
        (page, i) => `import * as page${i} from ${JSON.stringify(path.join(folder, page + '.mdx'))};`,
      );
      const entries = website.pages.map((page, i) => `${JSON.stringify(page)}: page${i}`);
      const exported = [`pages = {${entries}}`, `website = ${JSON.stringify(website)}`];
      return [...imports, ...exported.map((name) => `export const ${name};`)].join('\n');
    },
  };
}
