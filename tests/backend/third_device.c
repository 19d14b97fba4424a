/* Another runtime for the same card, which does not copy between cards. */
#define card_device_api third_device_api
#define CARD_NAME "third"
#define CARD_COPY NULL
#include "card_device.c"
