// What is wrong with the book, as opposed to a fault of the program that builds it.

/** Everything wrong that one step found, a line a fault; each begins with the file it is in. */
export class BookFault extends Error {
  constructor(faults) {
    super(faults.join('\n'));
    this.name = 'BookFault';
    this.faults = faults;
  }
}
