import path from 'node:path';

/** The language of the page that a file holds, by the first folder of its id: `zh` of `zh/chapters/00-notation`. */
export function languageOf(file) {
  return path.relative(process.env.BOOK_WEBSITE, file.path).split(path.sep)[0];
}
