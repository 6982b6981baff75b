/** The ticket in a fragment like `#ticket=XYZ`; none if there is none. */
export function ticketIn(fragment: string): string | null {
  const ticket = new URLSearchParams(fragment.replace(/^#/, '')).get('ticket');
  return ticket === null || ticket === '' ? null : ticket;
}
