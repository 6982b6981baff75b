import { signal } from '@preact/signals';
import { parseRoute, routeFragment, type Route } from '../model/route';
import { ticketIn } from '../model/ticket';
import { signIn } from './session';

export const route = signal<Route>(parseRoute(window.location.hash));

export function go(to: Route): void {
  window.location.hash = routeFragment(to);
}

/** Returns the ticket in the address, if any, and removes it, so that it stays in no history. */
export function takeTicket(): string | null {
  const ticket = ticketIn(window.location.hash);
  if (ticket !== null) window.history.replaceState(null, '', window.location.pathname + window.location.search);
  return ticket;
}

export function followAddress(): void {
  window.addEventListener('hashchange', () => {
    const ticket = takeTicket();
    if (ticket !== null) void signIn(ticket);
    route.value = parseRoute(window.location.hash);
  });
}
