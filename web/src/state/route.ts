import { signal } from '@preact/signals';
import { parseRoute, routeFragment, type Route } from '../model/route';
import { ticketIn } from '../model/ticket';
import { signIn } from './session';

export const route = signal<Route>(parseRoute(window.location.hash));

export function go(to: Route): void {
  window.location.hash = routeFragment(to);
}

/** The ticket in the address, if there is one. It is taken away at once, so that it is in no history and nobody copies it. */
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
