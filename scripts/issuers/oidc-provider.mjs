// An issuer with device codes, for tests: npm's oidc-provider on a free port of loopback.
//
// Prints its URL, and then one line for each command of standard input:
//
//   approve CODE   the user confirms a device code
//   deny CODE      the user refuses it
//   mint CLAIMS    prints a token with these claims (JSON), signed by the issuer
//   knows TOKEN    prints whether a refresh token is valid: true or false
//   rotate         replaces the key
//   down, up       stops and continues to answer
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { exportJWK, generateKeyPair, importJWK, SignJWT } from 'jose';

// What the library says of itself is not an answer.
console.info = console.error;
console.warn = console.error;
const { Provider } = await import('oidc-provider');

const CLIENT = 'longhaul';
const USER = 'alice';
const SCOPES = 'storage.read:/ storage.create:/ storage.modify:/in';
const TOKEN_SECONDS = Number(process.env.TOKEN_SECONDS ?? 600);
const POLL_SECONDS = 1;

let keys = 0;
let key;
let provider;
let issuer;

async function useNewKey() {
  const { privateKey } = await generateKeyPair('RS256', { extractable: true });
  keys += 1;
  key = { ...(await exportJWK(privateKey)), kid: `key-${keys}`, alg: 'RS256', use: 'sig' };
  provider = new Provider(issuer, {
    clients: [
      {
        client_id: CLIENT,
        token_endpoint_auth_method: 'none',
        application_type: 'native',
        grant_types: ['urn:ietf:params:oauth:grant-type:device_code', 'refresh_token'],
        response_types: [],
        redirect_uris: [],
      },
    ],
    cookies: { keys: ['secret of a test'] },
    features: {
      deviceFlow: { enabled: true },
      devInteractions: { enabled: false },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: (_context, resource) => ({
          scope: SCOPES,
          audience: resource,
          accessTokenFormat: 'jwt',
          accessTokenTTL: TOKEN_SECONDS,
          jwt: { sign: { alg: 'RS256' } },
        }),
        useGrantedResource: () => true,
      },
    },
    findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    jwks: { keys: [key] },
    rotateRefreshToken: true,
    scopes: ['openid', 'offline_access'],
  });
  provider.on('server_error', (_context, error) => console.error(error));
}

// RFC 8628 lets an issuer say how often it is asked.
function withInterval(response) {
  const end = response.end.bind(response);
  response.end = (body, ...rest) => {
    const answer = JSON.parse(body.toString());
    const text = JSON.stringify(answer.device_code ? { ...answer, interval: POLL_SECONDS } : answer);
    response.setHeader('content-length', Buffer.byteLength(text));
    return end(text, ...rest);
  };
}

async function deviceCode(code) {
  const found = await provider.DeviceCode.findByUserCode(code.replaceAll('-', ''));
  if (!found) throw new Error(`no device code ${code}`);
  return found;
}

async function approve(code) {
  const found = await deviceCode(code);
  const { scope, resource } = found.params;
  const grant = new provider.Grant({ accountId: USER, clientId: CLIENT });
  grant.addOIDCScope('openid offline_access');
  for (const one of [resource].flat()) grant.addResourceScope(one, scope);
  Object.assign(found, {
    accountId: USER,
    authTime: Math.floor(Date.now() / 1000),
    grantId: await grant.save(),
    scope,
    resource,
  });
  await found.save();
  return 'approved';
}

async function deny(code) {
  const found = await deviceCode(code);
  Object.assign(found, { error: 'access_denied', errorDescription: 'the user refused' });
  await found.save();
  return 'denied';
}

async function mint(claims) {
  const header = { alg: 'RS256', kid: key.kid, typ: 'at+jwt' };
  const token = new SignJWT(JSON.parse(claims)).setProtectedHeader(header);
  return token.sign(await importJWK(key, 'RS256'));
}

const server = createServer((request, response) => {
  if (request.url.startsWith('/device/auth')) withInterval(response);
  provider.callback()(request, response);
});

function listen(port) {
  return new Promise((resolve) => server.listen(port, '127.0.0.1', resolve));
}

await listen(0);
const { port } = server.address();
issuer = `http://127.0.0.1:${port}`;
await useNewKey();

const commands = {
  approve,
  deny,
  mint,
  knows: async (token) => Boolean(await provider.RefreshToken.find(token)),
  rotate: async () => {
    await useNewKey();
    return 'rotated';
  },
  down: async () => {
    const closed = new Promise((resolve) => server.close(resolve));
    server.closeAllConnections();
    await closed;
    return 'down';
  },
  up: async () => {
    await listen(port);
    return 'up';
  },
};

console.log(issuer);
for await (const line of createInterface({ input: process.stdin })) {
  const [name, ...words] = line.split(' ');
  try {
    console.log(await commands[name](words.join(' ')));
  } catch (error) {
    console.error(error);
    console.log(`failed: ${error.message}`);
  }
}
process.exit();
