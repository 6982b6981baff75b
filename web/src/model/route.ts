// View of the page, encoded in the fragment of the address.

export type View = 'files' | 'jobs' | 'places';

export interface Route {
  view: View;
  /** In the view of jobs, the number of the job whose details are shown. */
  job: number | null;
}

export function parseRoute(fragment: string): Route {
  const [view, id] = fragment.replace(/^#/, '').split('/');
  if (view === 'places') return { view, job: null };
  if (view !== 'jobs') return { view: 'files', job: null };
  return { view, job: id !== undefined && /^[0-9]{1,15}$/.test(id) ? Number(id) : null };
}

export function routeFragment(route: Route): string {
  return route.view === 'jobs' && route.job !== null ? `#jobs/${String(route.job)}` : `#${route.view}`;
}
