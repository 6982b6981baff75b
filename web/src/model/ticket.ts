/** Returns the ticket in a fragment such as `#ticket=XYZ`, or null. */
export function ticketIn(fragment: string): string | null {
  const ticket = new URLSearchParams(fragment.replace(/^#/, '')).get('ticket');
  return ticket === null || ticket === '' ? null : ticket;
}
