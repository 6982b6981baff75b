/* Loaded behind the library, in place of a name server: every name of one.example and two.example is 192.0.2.1. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>

int getaddrinfo(const char *node, const char *service, const struct addrinfo *hints, struct addrinfo **result)
{
    struct addrinfo *found = calloc(1, sizeof *found);
    struct sockaddr_in *address = calloc(1, sizeof *address);

    (void)node;
    address->sin_family = AF_INET;
    address->sin_port = htons((unsigned short)atoi(service));
    inet_pton(AF_INET, "192.0.2.1", &address->sin_addr);
    found->ai_family = AF_INET;
    found->ai_socktype = hints->ai_socktype;
    found->ai_addr = (struct sockaddr *)address;
    found->ai_addrlen = sizeof *address;
    *result = found;
    return 0;
}

void freeaddrinfo(struct addrinfo *found)
{
    free(found->ai_addr);
    free(found);
}

struct hostent *gethostbyname(const char *name)
{
    static struct hostent host;
    static struct in_addr address;
    static char *addresses[2];

    (void)name;
    inet_pton(AF_INET, "192.0.2.1", &address);
    addresses[0] = (char *)&address;
    host.h_addrtype = AF_INET;
    host.h_length = 4;
    host.h_addr_list = addresses;
    return &host;
}
